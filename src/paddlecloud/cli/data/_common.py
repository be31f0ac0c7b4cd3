"""What the `data` commands share: options, paths, progress, and errors as sentences."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paddlecloud.cli.parser import LIST, NUMBER, TEXT, Option
from paddlecloud.model.errors import Invalid, NotFound, Refused

if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args, Run
    from paddlecloud.data.recordio.repair import Report

FILE = Option(
    "file", LIST, ("a data file or a pattern; may be repeated", "数据文件或通配符，可给出多个"),
    metavar="FILE", completes="file", required=True,
)  # fmt: skip
LAYOUT = Option(
    "layout", TEXT,
    (
        "layout of the chunk header: that of 2017 or of Paddle Fluid",
        "块头的格式：2017 年的或 Paddle Fluid 的",
    ),
    choices=("2017", "fluid"), default="2017",
)  # fmt: skip
ERRORS = Option(
    "errors", TEXT,
    ("damaged data: report an error, stop there, or skip it", "遇到损坏时：报错、停止或跳过"),
    choices=("raise", "stop", "skip"), default="raise",
)  # fmt: skip
FORMAT = Option(
    "format", TEXT,
    ("format of the input: RecordIO, or lines of text", "输入格式：RecordIO 或文本行"),
    choices=("recordio", "lines"), default="recordio",
)  # fmt: skip
COMPRESSOR = Option(
    "compressor", TEXT, ("compression of the output", "输出的压缩方式"),
    choices=("none", "snappy", "gzip"), default="snappy",
)  # fmt: skip
LINE_COUNT = Option("line_count", NUMBER, ("records in each file", "每个文件的记录数"), metavar="N")


def guarded(run: Run) -> Run:
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


def paths_of(args: Args, command: str) -> list[str]:
    from paddlecloud.data.recordio.source import names  # noqa: PLC0415 - only `data` needs it

    if not args["file"]:
        raise Invalid("data_no_file", command=command)
    found: list[str] = []
    for pattern in args["file"]:
        try:
            found += [name for name in names(only(pattern)) if isinstance(name, str)]
        except FileNotFoundError:
            lines = args.get("format") == "lines"
            code = "data_missing_lines" if lines else "data_missing"
            raise NotFound(code, pattern=pattern) from None
    return found


def only(path: str) -> str | os.PathLike[str]:
    """A file that exists is itself, whatever commas and brackets its name has."""
    from pathlib import Path  # noqa: PLC0415 - only `data` needs it

    return Path(path) if Path(path).is_file() else path


def facts(report: Report, lang: str) -> dict[str, object]:
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
        "damages": [
            {
                "chunk": damage.chunk,
                "offset": damage.offset,
                "end": damage.end,
                "reason": damage.reason,
                "text": damage.why(lang),
            }
            for damage in report.damages
        ],
    }


def file_size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a Path for it costs more than the call
    except OSError:
        return 0
