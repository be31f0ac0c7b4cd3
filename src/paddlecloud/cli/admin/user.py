"""`admin user …`: who may use this server, and in which role."""

from __future__ import annotations

from paddlecloud.cli.account_options import USER, show_one, show_rows, wanted_user
from paddlecloud.cli.parser import TEXT, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

COLUMNS = ("user_id", "role", "plan", "email", "lang", "disabled", "tokens", "created_at")
DROPPED = ("created_at", "lang", "tokens", "plan")
CHANGEABLE = ("role", "plan", "email", "lang")


def list_users(args: Args, context: Context) -> int:
    del args
    return show_rows(context.out, COLUMNS, context.client.admin.users(), DROPPED)


def show(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin user show")
    return show_one(context.out, context.client.admin.user(user))


def create(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin user create")
    given = {key: args[key] for key in CHANGEABLE if args[key] is not None}
    return show_one(context.out, context.client.admin.create_user(user, **given))


def change(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin user set")
    given = {key: args[key] for key in CHANGEABLE if args[key] is not None}
    return show_one(context.out, context.client.admin.set_user(user, **given))


def disable(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin user disable")
    return show_one(context.out, context.client.admin.set_user(user, disabled=True))


def enable(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin user enable")
    return show_one(context.out, context.client.admin.set_user(user, disabled=False))


def delete(args: Args, context: Context) -> int:
    user = wanted_user(args, "admin user delete")
    context.client.admin.delete_user(user)
    if context.out.json:
        context.out.value({"user_id": user})
    else:
        context.out.say("user_deleted", user=user)
    return 0


_VALUES = (
    Option(
        "role", TEXT, ("what the user may do", "角色"), choices=("user", "admin", "readonly"),
    ),
    Option(
        "plan", TEXT, ("quota plan; empty: the default", "套餐，留空为默认"), metavar="PLAN",
    ),
    Option(
        "email", TEXT, ("address that gen_token mails to; empty: none", "接收密钥的邮箱，留空为无"),
        metavar="ADDRESS",
    ),
    Option("lang", TEXT, ("language of mails", "邮件语言"), choices=("zh", "en")),
)  # fmt: skip

COMMANDS = (
    Command(
        "admin user list",
        list_users,
        ("List all users: role, plan, address, keys.", "列出用户：角色、套餐、邮箱、密钥数。"),
        examples=("paddlecloud admin user list", "paddlecloud admin user list --json"),
    ),
    Command(
        "admin user show",
        show,
        ("Show one user.", "查看一个用户。"),
        operand="user",
        options=(USER,),
        examples=("paddlecloud admin user show alice",),
    ),
    Command(
        "admin user create",
        create,
        (
            "Create a user. With an address they get their keys by gen_token, else by "
            "`admin token create`.",
            "新建用户。有邮箱的用户可用 gen_token 获取密钥，也可用 admin token create 创建。",
        ),
        operand="user",
        options=(USER, *_VALUES),
        examples=("paddlecloud admin user create alice --email=alice@example.com --role=user",),
    ),
    Command(
        "admin user set",
        change,
        ("Change a user; other values stay as they are.", "修改用户，未给出的项保持不变。"),
        operand="user",
        options=(USER, *_VALUES),
        examples=("paddlecloud admin user set alice --plan=unlimited",),
    ),
    Command(
        "admin user disable",
        disable,
        (
            "Disable a user at once: all their keys stop working, their jobs continue.",
            "立即停用用户：其全部密钥失效，已有任务继续运行。",
        ),
        operand="user",
        options=(USER,),
        examples=("paddlecloud admin user disable alice",),
    ),
    Command(
        "admin user enable",
        enable,
        ("Enable a user again, with the same keys.", "重新启用用户，原有密钥恢复可用。"),
        operand="user",
        options=(USER,),
        examples=("paddlecloud admin user enable alice",),
    ),
    Command(
        "admin user delete",
        delete,
        (
            "Delete a user who has neither jobs nor files; other users can be disabled.",
            "删除没有任务和文件的用户；其他用户只能停用。",
        ),
        operand="user",
        options=(USER,),
        examples=("paddlecloud admin user delete alice",),
    ),
)
