"""`admin gc`: delete now what the server would delete by itself in the next hours."""

from __future__ import annotations

from paddlecloud.cli.output import size
from paddlecloud.cli.parser import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def collect(args: Args, context: Context) -> int:
    del args
    answer = context.client.gc()
    if context.out.json:
        context.out.value(answer)
    else:
        code = "collected_one" if answer["jobs"] == 1 else "collected"
        context.out.line(context.out.text(code, jobs=answer["jobs"], size=size(answer["bytes"])))
    return 0


COMMANDS = (
    Command(
        "admin gc",
        collect,
        (
            "Delete now what is past its retention time: finished jobs, unused files.",
            "立即清理超过保留时间的已结束任务和未使用的文件。",
        ),
        examples=("paddlecloud admin gc",),
    ),
)
