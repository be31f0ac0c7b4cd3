"""`admin token …`: the keys of all users."""

from __future__ import annotations

from paddlecloud.cli.account_options import (
    AK,
    NAME,
    SCOPE,
    TOKEN_COLUMNS,
    TOKEN_DROPPED,
    USER,
    show_new_token,
    show_one,
    show_rows,
    wanted_key,
    wanted_user,
)
from paddlecloud.cli.parser import FLAG, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def list_tokens(args: Args, context: Context) -> int:
    rows = context.client.admin.tokens(args["user"], revoked=args["all"])
    return show_rows(context.out, TOKEN_COLUMNS, rows, TOKEN_DROPPED)


def create(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin token create")
    made = context.client.admin.create_token(user, name=args["name"], scope=args["scope"])
    return show_new_token(context.out, made)


def revoke(args: Args, context: Context) -> int:
    ak = wanted_key(args, "admin token revoke")
    return show_one(context.out, context.client.admin.revoke_token(ak))


COMMANDS = (
    Command(
        "admin token list",
        list_tokens,
        (
            "List the keys of one user or of all; secret keys are never shown.",
            "列出密钥（全部或某个用户的），不显示 sk。",
        ),
        operand="user",
        words="[USER]",
        options=(
            USER.but(required=False),
            Option("all", FLAG, ("revoked ones too", "包括已吊销的")),
        ),
        examples=("paddlecloud admin token list", "paddlecloud admin token list alice --all"),
    ),
    Command(
        "admin token create",
        create,
        (
            "Create a pair of keys for a user. The secret key is shown only once.",
            "为用户新建一对密钥。sk 只显示这一次。",
        ),
        operand="user",
        options=(USER, NAME, SCOPE),
        examples=("paddlecloud admin token create alice --name=laptop",),
    ),
    Command(
        "admin token revoke",
        revoke,
        ("Revoke a key of any user, at once and for good.", "立即永久吊销任何用户的密钥。"),
        operand="ak",
        options=(AK,),
        examples=("paddlecloud admin token revoke 4f6f1e7ed2dc4d3c9d4f7f4e1f2a3b4c",),
    ),
)
