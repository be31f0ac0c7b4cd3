"""`token …`: one's own keys."""

from __future__ import annotations

from paddlecloud.cli.account_options import (
    AK,
    NAME,
    SCOPE,
    TOKEN_COLUMNS,
    TOKEN_DROPPED,
    show_new_token,
    show_one,
    show_rows,
    wanted_key,
)
from paddlecloud.cli.parser import FLAG, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def list_tokens(args: Args, context: Context) -> int:
    rows = context.client.list_tokens(revoked=args["all"])
    return show_rows(context.out, TOKEN_COLUMNS, rows, TOKEN_DROPPED)


def create(args: Args, context: Context) -> int:
    made = context.client.create_token(name=args["name"], scope=args["scope"])
    return show_new_token(context.out, made)


def revoke(args: Args, context: Context) -> int:
    ak = wanted_key(args, "token revoke")
    return show_one(context.out, context.client.revoke_token(ak))


COMMANDS = (
    Command(
        "token list",
        list_tokens,
        (
            "List your keys: name, scope, last use. Secret keys are never shown.",
            "列出自己的密钥：名称、权限、最近使用时间，不显示 sk。",
        ),
        options=(Option("all", FLAG, ("revoked ones too", "包括已吊销的")),),
        examples=("paddlecloud token list", "paddlecloud token list --all --json"),
    ),
    Command(
        "token create",
        create,
        (
            "Create another pair of keys, for another machine or a script. The secret key is shown "
            "only once.",
            "为另一台机器或脚本新建一对密钥。sk 只显示这一次。",
        ),
        options=(NAME, SCOPE),
        examples=("paddlecloud token create --name=dashboard --scope=read",),
    ),
    Command(
        "token revoke",
        revoke,
        ("Revoke one of your keys, at once and for good.", "立即永久吊销自己的一个密钥。"),
        operand="ak",
        options=(AK,),
        examples=("paddlecloud token revoke 4f6f1e7ed2dc4d3c9d4f7f4e1f2a3b4c",),
    ),
)
