"""`config show`: the configuration that every command uses, and where each value came from."""

from __future__ import annotations

from paddlecloud.cli.parser import FLAG, Command, Option

DEFAULT = "default"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def show(args: Args, context: Context) -> int:
    out = context.out
    rows = context.config.rows()
    if out.json:
        out.value(
            [{"name": name, "value": value, "origin": origin} for name, value, origin in rows]
        )
    elif args["origin"]:
        default = out.text("word_default") if out.on_terminal else DEFAULT
        out.table(
            ("name", "value", "origin"),
            [
                (name, value, default if origin == DEFAULT else origin)
                for name, value, origin in rows
            ],
        )
    else:
        for name, value, _ in rows:
            out.line(f"{name}: {value}" if value else f"{name}:")
    return 0


COMMANDS = (
    Command(
        "config show",
        show,
        (
            "Print the configuration that every command uses; secrets are masked.",
            "显示所有命令使用的配置，密钥会被遮盖。",
        ),
        options=(Option("origin", FLAG, ("show where each value came from", "显示每个值的来源")),),
        examples=("paddlecloud config show --origin",),
    ),
)
