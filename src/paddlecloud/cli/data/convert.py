"""`data convert`, `data split`: write records of RecordIO or text files into new RecordIO files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.cli.data._common import (
    COMPRESSOR,
    ERRORS,
    FILE,
    FORMAT,
    LAYOUT,
    LINE_COUNT,
    file_size,
    guarded,
    only,
    paths_of,
)
from paddlecloud.cli.parser import NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


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
    return _report_written(context, paths, counted.count)


def split(args: Args, context: Context) -> int:
    from paddlecloud.data.recordio import Writer  # noqa: PLC0415 - only `data` needs it

    count, suffix = args["line_count"], args["suffix"]
    if count is None:
        raise Invalid("data_needs_flag", command="data split", flag="--line_count")
    _check_counts(args, "line_count")
    try:
        if suffix % 0 == suffix % 1:
            raise TypeError
    except (TypeError, ValueError):
        raise Invalid("data_suffix", suffix=suffix) from None
    counted = _Counted(_records(args, context, "data split"))
    records = iter(counted)
    paths: list[str] = []
    while batch := list(islice(records, count)):
        path = suffix % len(paths)
        with Writer(path, compressor=args["compressor"]) as writer:
            writer.write_all(batch)
        paths.append(path)
    return _report_written(context, paths, counted.count)


class _Counted:
    """Counts the records that a command writes."""

    def __init__(self, records: Iterator[bytes]) -> None:
        self._records = records
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for record in self._records:
            self.count += 1
            yield record


def _check_counts(args: Args, *names: str) -> None:
    for name in names:
        if args[name] == 0:
            raise Invalid("data_none", flag=f"--{name}")


def _records(args: Args, context: Context, command: str) -> Iterator[bytes]:
    from paddlecloud.data.recordio import Reader  # noqa: PLC0415 - only `data` needs it

    paths = paths_of(args, command)
    with context.out.progress("data_reading", sum(map(file_size, paths))) as bar:
        for path in paths:
            if args["format"] == "lines":
                with Path(path).open("rb") as file:
                    for line in file:
                        bar.add(len(line))
                        yield line.rstrip(b"\r\n")
            else:
                with Reader(only(path), errors=args["errors"], layout=args["layout"]) as reader:
                    yield from reader
                bar.add(file_size(path))


def _report_written(context: Context, paths: list[str], records: int) -> int:
    if context.out.json:
        context.out.value({"records": records, "files": paths})
        return 0
    for path in paths:
        context.out.line(path)
    context.out.say("data_written", records=records, count=len(paths))
    return 0


COMMANDS = (
    Command(
        "data convert",
        guarded(convert),
        (
            "Write the records of files into RecordIO shards, for as many trainers.",
            "将文件中的记录写成多个 RecordIO 分片，供多个训练实例使用。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            FILE,
            Option(
                "output_path", TEXT, ("directory to write to", "输出目录"),
                metavar="DIR", completes="directory", required=True,
            ),
            Option(
                "num_shards", NUMBER,
                ("number of files; records are shuffled", "文件数量，记录会打乱"), metavar="N",
            ),
            LINE_COUNT,
            Option(
                "name_prefix", TEXT, ("how their names begin", "文件名前缀"),
                metavar="NAME", default="data",
            ),
            Option(
                "shuffle", "bool",
                ("1 shuffles the records, 0 keeps their order", "1 打乱记录，0 保持顺序"),
                metavar="0|1",
            ),
            Option(
                "seed", NUMBER, ("seed of the shuffle, to repeat an order", "随机种子"),
                metavar="N",
            ),
            FORMAT,
            COMPRESSOR,
            ERRORS,
            LAYOUT,
        ),
        examples=(
            "paddlecloud data convert all.recordio --num_shards=10 --output_path=dataset",
            "paddlecloud data convert --format=lines --line_count=1000 --output_path=d train.txt",
        ),
    ),
    Command(
        "data split",
        guarded(split),
        (
            "Split files into RecordIO files of so many records each, in order.",
            "将文件按记录数依次拆分为多个 RecordIO 文件。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            FILE,
            LINE_COUNT.but(required=True),
            Option(
                "suffix", TEXT,
                ("path of the output files, with %05d for their number", "输出路径，%05d 为编号"),
                metavar="PATTERN", default="%05d.recordio",
            ),
            FORMAT,
            COMPRESSOR,
            ERRORS,
            LAYOUT,
        ),
        examples=("paddlecloud data split all.recordio --line_count=500 --suffix=train-%05d",),
    ),
)  # fmt: skip
