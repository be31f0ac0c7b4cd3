"""`data repair`: writes the intact chunks of a RecordIO file to a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddlecloud.cli.data._common import FILE, LAYOUT, facts, file_size, guarded, paths_of
from paddlecloud.cli.parser import FLAG, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def repair(args: Args, context: Context) -> int:
    from paddlecloud.data.recordio import repair as repaired  # noqa: PLC0415 - only `data` needs it

    out, rows = context.out, []
    paths = paths_of(args, "data repair")
    if args["output"] and len(paths) > 1:
        raise Invalid("data_one_output", count=len(paths))
    for path in paths:
        output = path if args["in_place"] else args["output"] or f"{path}.repaired"
        with out.progress("data_reading", file_size(path)) as bar:
            report = repaired(path, output, layout=args["layout"], progress=bar.add)
        rows.append({**facts(report, out.lang), "output": output})
        if not out.json:
            count = len(report.damages)
            values = {"path": path, "records": report.records, "output": output, "count": count}
            out.line(out.text("data_repaired_one" if count == 1 else "data_repaired", **values))
    if out.json:
        out.value(rows)
    return 0


COMMANDS = (
    Command(
        "data repair",
        guarded(repair),
        (
            "Write the intact chunks of a RecordIO file to a new one, by default FILE.repaired.",
            "将 RecordIO 文件中完好的块写入新文件，默认为 FILE.repaired。",
        ),
        operand="file",
        words="FILE ...",
        options=(
            FILE,
            Option(
                "output", TEXT, ("where to write", "输出文件"), metavar="FILE", completes="file",
            ),
            Option("in_place", FLAG, ("replace the file itself", "直接替换原文件")),
            LAYOUT,
        ),
        examples=(
            "paddlecloud data repair train-00000",
            "paddlecloud data repair --in_place train-*",
        ),
    ),
)  # fmt: skip
