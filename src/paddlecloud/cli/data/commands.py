"""`data …`: looks at RecordIO files and makes new ones. No server is asked.

Records are bytes here: nothing is unpickled, because a command that shows a file of somebody else
must not run what is in it.
"""

from __future__ import annotations

import os
from itertools import islice

from paddlecloud.cli._output import size
from paddlecloud.cli.parser import FLAG, LIST, NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid, NotFound, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddlecloud.cli._context import Context
    from paddlecloud.cli._output import Output, Progress
    from paddlecloud.cli.parser import Args, Run
    from paddlecloud.data.recordio.corruption import Damage
    from paddlecloud.data.recordio.repair import Report

FORMATS = ("recordio", "lines")
#: As many records as `head` of the system shows lines.
HEAD = 10
_SHOWN_BYTES = 60


def ls(args: Args, context: Context) -> int:
    """From headers alone: large files are listed at once."""
    from paddlecloud.data.recordio import Index  # noqa: PLC0415 - only `data` needs it

    rows, shown = [], []
    for path in _paths(args, "data ls"):
        index = Index.of(_only(path), layout=args["layout"])
        records, chunks = len(index), len(index.chunks)
        total = sum(chunk.size for chunk in index.chunks)
        rows.append({"path": path, "records": records, "chunks": chunks, "bytes": total})
        shown.append((str(records), str(chunks), size(total), path))
    if context.out.json:
        context.out.value(rows)
        return 0
    context.out.table(("RECORDS", "CHUNKS", "SIZE", "FILE"), shown)
    return 0


def head(args: Args, context: Context) -> int:
    from paddlecloud.data.recordio import Reader  # noqa: PLC0415 - only `data` needs it

    paths = [_only(path) for path in _paths(args, "data head")]
    count = HEAD if args["n"] is None else args["n"]
    with Reader(paths, errors=args["errors"], layout=args["layout"]) as reader:
        found = list(islice(reader, count))
    if context.out.json:
        context.out.value([{"record": n, **_described(one)} for n, one in enumerate(found)])
        return 0
    for number, record in enumerate(found):
        context.out.line(f"{number}\t{len(record)}\t{_preview(record)}")
    return 0


def stat(args: Args, context: Context) -> int:
    reports = list(_reports(args, context, "data stat"))
    if context.out.json:
        context.out.value([_facts(report, context.out.lang) for report in reports])
        return 0
    for report in reports:
        for key, value in _facts(report, context.out.lang).items():
            if key != "damages":
                context.out.line(f"{key}: {'' if value is None else value}".rstrip())
    return 0


def verify(args: Args, context: Context) -> int:
    """Exit code 1 if anything is damaged."""
    out = context.out
    reports = list(_reports(args, context, "data verify"))
    if out.json:
        out.value([_facts(report, out.lang) for report in reports])
    else:
        for report in reports:
            _tell_damage(report, out)
    return 0 if all(report.sound for report in reports) else 1


def repair(args: Args, context: Context) -> int:
    from paddlecloud.data.recordio import repair as repaired  # noqa: PLC0415 - only `data` needs it

    out, rows = context.out, []
    paths = _paths(args, "data repair")
    if args["output"] and len(paths) > 1:
        raise Invalid("data_one_output", count=len(paths))
    for path in paths:
        output = path if args["in_place"] else args["output"] or f"{path}.repaired"
        with out.progress("data_reading", _size(path)) as bar:
            report = repaired(path, output, layout=args["layout"], progress=bar.add)
        rows.append({**_facts(report, out.lang), "output": output})
        if not out.json:
            count = len(report.damages)
            told = {"path": path, "records": report.records, "output": output, "count": count}
            out.line(out.text("data_repaired_one" if count == 1 else "data_repaired", **told))
    if out.json:
        out.value(rows)
    return 0


def convert(args: Args, context: Context) -> int:
    from paddlecloud.data.legacy2017.dataset import convert as converted  # noqa: PLC0415 - only `data` needs it

    if not args["output_path"]:
        raise Invalid("data_needs_flag", command="data convert", flag="--output_path")
    if (args["num_shards"] is None) == (args["line_count"] is None):
        flags = {"first": "--num_shards", "second": "--line_count"}
        raise Invalid("data_needs_one", command="data convert", **flags)
    _check_counts(args, "num_shards", "line_count")
    counted = _Counted(_records(args, context, "data convert"))
    paths = converted(
        args["output_path"],
        counted,
        args["num_shards"],
        args["name_prefix"],
        line_count=args["line_count"],
        shuffle=args["shuffle"],
        seed=args["seed"],
        dumps=bytes,
        compressor=args["compressor"],
    )
    return _told_written(context, paths, counted.count)


def split(args: Args, context: Context) -> int:
    from paddlecloud.data.recordio import Writer  # noqa: PLC0415 - only `data` needs it

    count, suffix = args["line_count"], args["suffix"]
    if count is None:
        raise Invalid("data_needs_flag", command="data split", flag="--line_count")
    _check_counts(args, "line_count")
    names = _numbered(suffix)
    counted = _Counted(_records(args, context, "data split"))
    records = iter(counted)
    paths: list[str] = []
    while batch := list(islice(records, count)):
        path = names(len(paths))
        with Writer(path, compressor=args["compressor"]) as writer:
            writer.write_all(batch)
        paths.append(path)
    return _told_written(context, paths, counted.count)


class _Counted:
    """Counts what passes, so that a command can tell how much it wrote."""

    def __init__(self, records: Iterator[bytes]) -> None:
        self._records = records
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for record in self._records:
            self.count += 1
            yield record


def _guarded(run: Run) -> Run:
    """What the data package raises, as errors of the command line."""

    def guarded(args: Args, context: Context) -> int:
        from paddlecloud.data.recordio.corruption import DamagedFile  # noqa: PLC0415 - only `data` needs it

        try:
            return run(args, context)
        except DamagedFile as error:
            damage = error.damage.text(context.out.lang)
            raise Refused("data_damaged", damage=damage) from error
        except ImportError as error:
            raise Refused("data_needs_package", why=error) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            path = error.filename or ",".join(args["file"])
            raise Refused("data_unusable", path=path, why=error.strerror or error) from error

    return guarded


def _check_counts(args: Args, *names: str) -> None:
    for name in names:
        if args[name] == 0:
            raise Invalid("data_none", flag=f"--{name}")


def _paths(args: Args, command: str) -> list[str]:
    from paddlecloud.data.recordio.source import names  # noqa: PLC0415 - only `data` needs it

    if not args["file"]:
        raise Invalid("data_no_file", command=command)
    found: list[str] = []
    for pattern in args["file"]:
        try:
            found += [name for name in names(_only(pattern)) if isinstance(name, str)]
        except FileNotFoundError:
            lines = args.get("format") == "lines"
            code = "data_missing_lines" if lines else "data_missing"
            raise NotFound(code, pattern=pattern) from None
    return found


def _only(path: str) -> str | os.PathLike[str]:
    """A file that exists is itself, whatever commas and brackets its name has."""
    from pathlib import Path  # noqa: PLC0415 - only `data` needs it

    return Path(path) if Path(path).is_file() else path


def _reports(args: Args, context: Context, command: str) -> Iterator[Report]:
    from paddlecloud.data.recordio import verify as verified  # noqa: PLC0415 - only `data` needs it

    for path in _paths(args, command):
        with context.out.progress("data_reading", _size(path)) as bar:
            yield verified(path, layout=args["layout"], progress=bar.add)


def _records(args: Args, context: Context, command: str) -> Iterator[bytes]:
    from paddlecloud.data.recordio import Reader  # noqa: PLC0415 - only `data` needs it

    paths = _paths(args, command)
    with context.out.progress("data_reading", sum(map(_size, paths))) as bar:
        for path in paths:
            if args["format"] == "lines":
                yield from _lines(path, bar)
            else:
                with Reader(_only(path), errors=args["errors"], layout=args["layout"]) as reader:
                    yield from reader
                bar.add(_size(path))


def _lines(path: str, bar: Progress) -> Iterator[bytes]:
    from pathlib import Path  # noqa: PLC0415 - only `data` needs it

    with Path(path).open("rb") as file:
        for line in file:
            bar.add(len(line))
            yield line.rstrip(b"\r\n")


def _numbered(suffix: str) -> Callable[[int], str]:
    try:
        if suffix % 0 == suffix % 1:
            raise TypeError
    except (TypeError, ValueError):
        raise Invalid("data_suffix", suffix=suffix) from None
    return lambda number: suffix % number


def _tell_damage(report: Report, out: Output) -> None:
    for damage in report.damages:
        out.line(out.paint(damage.text(out.lang), "red"))
    numbers = {"path": report.path, "records": report.records}
    if report.sound:
        out.line(out.text("data_sound", chunks=report.chunks, **numbers))
        return
    count = len(report.damages)
    code = "data_found_damage_one" if count == 1 else "data_found_damage"
    out.line(out.text(code, count=count, **numbers))


def _told_written(context: Context, paths: list[str], records: int) -> int:
    if context.out.json:
        context.out.value({"records": records, "files": paths})
        return 0
    for path in paths:
        context.out.line(path)
    context.out.say("data_written", records=records, count=len(paths))
    return 0


def _facts(report: Report, lang: str) -> dict[str, object]:
    mean = round(report.raw_bytes / report.records, 1) if report.records else None
    return {
        "path": report.path,
        "bytes": report.bytes,
        "chunks": report.chunks,
        "records": report.records,
        "record_bytes": report.raw_bytes,
        "smallest_record": report.smallest,
        "mean_record": mean,
        "largest_record": report.largest,
        "compressors": ",".join(sorted(report.compressors)),
        "sound": report.sound,
        "damages": [_fact_of(damage, lang) for damage in report.damages],
    }


def _fact_of(damage: Damage, lang: str) -> dict[str, object]:
    return {
        "chunk": damage.chunk,
        "offset": damage.offset,
        "end": damage.end,
        "reason": damage.reason,
        "text": damage.why(lang),
    }


def _described(record: bytes) -> dict[str, object]:
    text = _text(record)
    return {"size": len(record), **({"hex": record.hex()} if text is None else {"text": text})}


def _preview(record: bytes) -> str:
    text = _text(record)
    if text is not None and text.isprintable():
        return text if len(text) <= _SHOWN_BYTES else text[:_SHOWN_BYTES] + "…"
    more = "…" if len(record) > _SHOWN_BYTES // 2 else ""
    return "0x" + record[: _SHOWN_BYTES // 2].hex() + more


def _text(record: bytes) -> str | None:
    try:
        return record.decode()
    except UnicodeDecodeError:
        return None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a Path for it costs more than the call
    except OSError:
        return 0


_FILE = Option(
    "file", LIST, ("a data file or a pattern; give several", "数据文件或通配符，可给出多个"),
    metavar="FILE", completes="file", required=True,
)  # fmt: skip
_LAYOUT = Option(
    "layout", TEXT,
    ("order of the header: 2017, or that of Paddle Fluid", "块头顺序：2017 或 Paddle Fluid"),
    choices=("2017", "fluid"), default="2017",
)  # fmt: skip
_ERRORS = Option(
    "errors", TEXT,
    ("at damage: raise an error, stop, or skip it", "遇到损坏时：报错、停止或跳过"),
    choices=("raise", "stop", "skip"), default="raise",
)  # fmt: skip
_FORMAT = Option(
    "format", TEXT,
    ("what the files are: recordio, or lines of text", "文件类型：recordio，或文本行 lines"),
    choices=FORMATS, default="recordio",
)  # fmt: skip
_COMPRESSOR = Option(
    "compressor", TEXT, ("of what is written", "输出的压缩方式"),
    choices=("none", "snappy", "gzip"), default="snappy",
)  # fmt: skip
_LINE_COUNT = Option(
    "line_count", NUMBER, ("records in each file", "每个文件的记录数"), metavar="N"
)

COMMANDS = (
    Command(
        "data ls",
        _guarded(ls),
        (
            "List RecordIO files: records, chunks, bytes. Only headers are read.",
            "列出 RecordIO 文件的记录数、块数和大小，只读取块头。",
        ),
        operand="file",
        words="FILE ...",
        options=(_FILE, _LAYOUT),
        examples=("paddlecloud data ls train-*", "paddlecloud data ls train-00000 --json"),
    ),
    Command(
        "data head",
        _guarded(head),
        (
            "Print the first records: number, size, and text or hex. Nothing is unpickled.",
            "显示最前面的记录：序号、大小，以及文本或十六进制内容，不会反序列化。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            _FILE,
            Option(
                "n", NUMBER, ("how many", "条数"), metavar="N", short="n", shown_default=HEAD,
            ),
            _ERRORS,
            _LAYOUT,
        ),
        examples=("paddlecloud data head train-00000", "paddlecloud data head -n 3 train-*"),
    ),
    Command(
        "data stat",
        _guarded(stat),
        (
            "Read RecordIO files and print their numbers: sizes of records, compression.",
            "读取 RecordIO 文件并统计记录大小和压缩情况。",
        ),
        operand="file",
        words="FILE ...",
        options=(_FILE, _LAYOUT),
        examples=("paddlecloud data stat train-00000",),
    ),
    Command(
        "data verify",
        _guarded(verify),
        (
            "Check every chunk of RecordIO files. The exit code is 1 if one is damaged.",
            "校验 RecordIO 文件的每个块。有损坏时退出码为 1。",
        ),
        operand="file",
        words="FILE ...",
        options=(_FILE, _LAYOUT),
        examples=("paddlecloud data verify train-*",),
    ),
    Command(
        "data repair",
        _guarded(repair),
        (
            "Write the sound chunks of a RecordIO file to a new one, FILE.repaired by default.",
            "将 RecordIO 文件中完好的块写入新文件，默认为 FILE.repaired。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            _FILE,
            Option(
                "output", TEXT, ("where to write", "输出文件"), metavar="FILE", completes="file",
            ),
            Option("in_place", FLAG, ("replace the file itself", "直接替换原文件")),
            _LAYOUT,
        ),
        examples=(
            "paddlecloud data repair train-00000",
            "paddlecloud data repair --in_place train-*",
        ),
    ),
    Command(
        "data convert",
        _guarded(convert),
        (
            "Write the records of files into RecordIO shards, for as many trainers.",
            "将文件中的记录写成多个 RecordIO 分片，供多个训练节点使用。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            _FILE,
            Option(
                "output_path", TEXT, ("directory to write to", "输出目录"),
                metavar="DIR", completes="directory", required=True,
            ),
            Option(
                "num_shards", NUMBER, ("how many files, shuffled", "文件数量，记录会打乱"),
                metavar="N",
            ),
            _LINE_COUNT,
            Option(
                "name_prefix", TEXT, ("how their names begin", "文件名前缀"),
                metavar="NAME", default="data",
            ),
            Option("shuffle", "bool", ("shuffle or not", "是否打乱"), metavar="0|1"),
            Option("seed", NUMBER, ("for the same order again", "随机种子"), metavar="N"),
            _FORMAT,
            _COMPRESSOR,
            _ERRORS,
            _LAYOUT,
        ),
        examples=(
            "paddlecloud data convert all.recordio --num_shards=10 --output_path=dataset",
            "paddlecloud data convert --format=lines --line_count=1000 --output_path=d train.txt",
        ),
    ),
    Command(
        "data split",
        _guarded(split),
        (
            "Split files into RecordIO files of so many records each, in order.",
            "将文件按记录数依次拆分为多个 RecordIO 文件。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            _FILE,
            _LINE_COUNT.but(required=True),
            Option(
                "suffix", TEXT, ("path with a place for the number", "输出路径，含编号占位符"),
                metavar="PATTERN", default="%05d.recordio",
            ),
            _FORMAT,
            _COMPRESSOR,
            _ERRORS,
            _LAYOUT,
        ),
        examples=("paddlecloud data split all.recordio --line_count=500 --suffix=train-%05d",),
    ),
)  # fmt: skip
