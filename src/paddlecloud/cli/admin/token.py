"""`admin token …`: the keys of all users, and tokens for Prometheus."""

from __future__ import annotations

from paddlecloud.cli.account_options import (
    AK,
    NAME,
    TOKEN_COLUMNS,
    TOKEN_DROPPED,
    USER,
    show_new_token,
    show_one,
    show_rows,
    wanted_key,
    wanted_user,
)
from paddlecloud.cli.parser import FLAG, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


SCOPE = Option(
    "scope", TEXT,
    ("what the key may do; metrics: a token for Prometheus, without a user",
     "密钥的权限；metrics 为供 Prometheus 使用的令牌，不属于任何用户"),
    default="full", choices=("full", "read", "metrics"),
)  # fmt: skip


def list_tokens(args: Args, context: Context) -> int:
    rows = context.client.admin.tokens(args["user"], revoked=args["all"])
    return show_rows(context.out, TOKEN_COLUMNS, rows, TOKEN_DROPPED)


def create(args: Args, context: Context) -> int:
    if args["scope"] == "metrics":
        return _create_metrics_token(args, context)
    user = wanted_user(args, "admin token create")
    made = context.client.admin.create_token(user, name=args["name"], scope=args["scope"])
    return show_new_token(context.out, made)


def _create_metrics_token(args: Args, context: Context) -> int:
    """Prints the token alone, so that the output can be Prometheus' credentials file."""
    if args["user"]:
        raise Invalid("metrics_token_user", user_id=args["user"])
    made = context.client.admin.create_metrics_token(name=args["name"])
    context.out.say("bearer_once", ak=made["ak"])
    if context.out.json:
        context.out.value(made)
    else:
        context.out.line(made["token"])
    return 0


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
            "Create a pair of keys for a user, or a token for Prometheus. The secret is shown only "
            "once.",
            "为用户新建一对密钥，或新建供 Prometheus 使用的令牌。密钥只显示这一次。",
        ),
        operand="user",
        words="[USER]",
        options=(USER, NAME, SCOPE),
        examples=(
            "paddlecloud admin token create alice --name=laptop",
            "paddlecloud admin token create --scope=metrics --name=prometheus",
        ),
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
