"""`data ls`, `data head`, `data stat`, `data verify`: read RecordIO files.

Records are bytes here: nothing is unpickled, because a command that shows a file of unknown origin
must not run what is in it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from paddlecloud.cli.data._common import (
    ERRORS,
    FILE,
    LAYOUT,
    facts,
    file_size,
    guarded,
    only,
    paths_of,
)
from paddlecloud.cli.output import size
from paddlecloud.cli.parser import NUMBER, Command, Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args
    from paddlecloud.data.recordio.repair import Report

#: As many records as `head` of the system shows lines.
HEAD = 10
_SHOWN_BYTES = 60


def ls(args: Args, context: Context) -> int:
    """From headers alone: large files are listed at once."""
    from paddlecloud.data.recordio import Index  # noqa: PLC0415 - only `data` needs it

    rows, shown = [], []
    for path in paths_of(args, "data ls"):
        index = Index.of(only(path), layout=args["layout"])
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

    paths = [only(path) for path in paths_of(args, "data head")]
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
        context.out.value([facts(report, context.out.lang) for report in reports])
        return 0
    for report in reports:
        for key, value in facts(report, context.out.lang).items():
            if key != "damages":
                context.out.line(f"{key}: {'' if value is None else value}".rstrip())
    return 0


def verify(args: Args, context: Context) -> int:
    """Exit code 1 if anything is damaged."""
    out = context.out
    reports = list(_reports(args, context, "data verify"))
    if out.json:
        out.value([facts(report, out.lang) for report in reports])
    else:
        for report in reports:
            for damage in report.damages:
                out.line(out.paint(damage.text(out.lang), "red"))
            count = len(report.damages)
            code = "data_found_damage_one" if count == 1 else "data_found_damage"
            numbers = {"count": count, "chunks": report.chunks, "records": report.records}
            code = "data_sound" if report.sound else code
            out.line(out.text(code, path=report.path, **numbers))
    return 0 if all(report.sound for report in reports) else 1


def _reports(args: Args, context: Context, command: str) -> Iterator[Report]:
    from paddlecloud.data.recordio import verify as verified  # noqa: PLC0415 - only `data` needs it

    for path in paths_of(args, command):
        with context.out.progress("data_reading", file_size(path)) as bar:
            yield verified(path, layout=args["layout"], progress=bar.add)


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


COMMANDS = (
    Command(
        "data ls",
        guarded(ls),
        (
            "List RecordIO files: records, chunks, bytes. Only headers are read.",
            "列出 RecordIO 文件的记录数、块数和大小，只读取块头。",
        ),
        operand="file",
        words="FILE ...",
        options=(FILE, LAYOUT),
        examples=("paddlecloud data ls train-*", "paddlecloud data ls train-00000 --json"),
    ),
    Command(
        "data head",
        guarded(head),
        (
            "Print the first records: number, size, and text or hex. Nothing is unpickled.",
            "显示最前面的记录：序号、大小，以及文本或十六进制内容，不会反序列化。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            FILE,
            Option(
                "n", NUMBER, ("how many", "条数"), metavar="N", short="n", shown_default=HEAD,
            ),
            ERRORS,
            LAYOUT,
        ),
        examples=("paddlecloud data head train-00000", "paddlecloud data head -n 3 train-*"),
    ),
    Command(
        "data stat",
        guarded(stat),
        (
            "Read RecordIO files and print their numbers: sizes of records, compression.",
            "读取 RecordIO 文件并统计记录大小和压缩情况。",
        ),
        operand="file",
        words="FILE ...",
        options=(FILE, LAYOUT),
        examples=("paddlecloud data stat train-00000",),
    ),
    Command(
        "data verify",
        guarded(verify),
        (
            "Check every chunk of RecordIO files. The exit code is 1 if one is damaged.",
            "校验 RecordIO 文件的每个块。有损坏时退出码为 1。",
        ),
        operand="file",
        words="FILE ...",
        options=(FILE, LAYOUT),
        examples=("paddlecloud data verify train-*",),
    ),
)  # fmt: skip
