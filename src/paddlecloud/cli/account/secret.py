"""`secret …`: confidential values for jobs: passwords, keys of other services."""

from __future__ import annotations

import sys

from paddlecloud.cli.account_options import show_one, show_rows
from paddlecloud.cli.parser import TEXT, Command, Option
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.param_checks import check_secret_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

_COLUMNS = ("name", "created_at", "updated_at")
_NAME = Option("name", TEXT, ("name of the secret", "机密的名称"), metavar="NAME", required=True)


def set_secret(args: Args, context: Context) -> int:
    name = _wanted(args, "secret set")
    value = _typed(context, name) if sys.stdin.isatty() else _piped()
    if not value:
        raise Invalid("secret_empty", name=name)
    return show_one(context.out, context.client.set_secret(name, value))


def list_secrets(args: Args, context: Context) -> int:
    del args
    return show_rows(context.out, _COLUMNS, context.client.list_secrets())


def remove(args: Args, context: Context) -> int:
    name = _wanted(args, "secret rm")
    context.client.delete_secret(name)
    if context.out.json:
        context.out.value({"name": name})
    else:
        context.out.say("secret_removed", name=name)
    return 0


def _wanted(args: Args, command: str) -> str:
    name: str | None = args["name"]
    if not name:
        raise Invalid("secret_name_missing", command=command)
    return check_secret_name(name)


def _typed(context: Context, name: str) -> bytes:
    from getpass import getpass  # noqa: PLC0415 - only this command needs it

    try:
        return getpass(context.out.text("secret_prompt", name=name), stream=sys.stderr).encode()
    except EOFError:
        return b""


def _piped() -> bytes:
    """All of stdin. `echo` adds a line end to a single line, which is not part of the value; a file
    of several lines stays as it is."""
    data = getattr(sys.stdin, "buffer", sys.stdin).read()
    data = data.encode() if isinstance(data, str) else data
    if data.find(b"\n") == len(data) - 1:
        return data.removesuffix(b"\n").removesuffix(b"\r")
    return data


COMMANDS = (
    Command(
        "secret set",
        set_secret,
        (
            "Keep a value for your jobs under a name, or replace it. The value is read from stdin, "
            "or typed without being shown; it is stored encrypted and shown nowhere. A job gets it "
            "with submit_job --secret NAME.",
            "以指定名称保存供任务使用的机密，或替换已有的值。值从标准输入读取，或在提示处输入（不回显）；"
            "加密保存，不会在任何地方显示。任务通过 submit_job --secret NAME 使用它。",
        ),
        operand="name",
        options=(_NAME,),
        examples=(
            "paddlecloud secret set wandb",
            "cat ~/.ssh/id_ed25519 | paddlecloud secret set deploy_key",
        ),
    ),
    Command(
        "secret list",
        list_secrets,
        (
            "List your secrets: names and times, never values.",
            "列出自己的机密：名称和时间，不显示值。",
        ),
        examples=("paddlecloud secret list",),
    ),
    Command(
        "secret rm",
        remove,
        (
            "Delete a secret. Running jobs keep what they were given; those that start later fail.",
            "删除机密。运行中的任务保留已得到的值；之后启动的任务会失败。",
        ),
        operand="name",
        options=(_NAME,),
        examples=("paddlecloud secret rm wandb",),
    ),
)
