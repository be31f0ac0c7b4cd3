"""`quota` and `admin quota show|set|plans`: what a plan allows, what is used of it, and changes."""

from __future__ import annotations

from paddlecloud.cli.output import size
from paddlecloud.cli.parser import FLAG, LIST, NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

DEFAULT_PLAN = "default"
LIMITS = (
    "running_jobs", "minutes_a_day", "minutes_a_job", "cpu", "memory", "gpu", "storage",
    "waiting_jobs", "max_priority",
)  # fmt: skip
_SIZES = ("memory", "storage")
_NONE = "-"
DAYS = 30


def own(args: Args, context: Context) -> int:
    return _show_usage(args, context, args["user"])


def of_user(args: Args, context: Context) -> int:
    return _show_usage(args, context, _user(args))


def change(args: Args, context: Context) -> int:
    user = _user(args)
    limits: dict[str, str] = {}
    for text in args["limit"]:
        name, _, value = text.partition("=")
        if not name or not value:
            raise Invalid("quota_limit_form", value=text)
        limits[name] = value
    wanted: dict[str, Any] = {"limits": limits} if limits else {}
    if args["plan"] is not None:
        wanted["plan"] = None if args["plan"] == DEFAULT_PLAN else args["plan"]
    if not wanted:
        raise Invalid("quota_nothing_given")
    _show(context, context.client.set_quota(user, **wanted))
    return 0


def plans(args: Args, context: Context) -> int:
    del args
    found = context.client.plans()
    if context.out.json:
        context.out.value(found)
        return 0
    names = LIMITS[:-1]
    rows = [
        [
            plan["name"] + ("*" if plan["default"] else ""),
            *(_word(name, plan["limits"].get(name)) for name in names),
            plan["max_priority"],
        ]
        for plan in found
    ]
    columns: tuple[str, ...] = ("plan", *LIMITS)
    if context.out.on_terminal:  # ten columns are too many: a row for each limit
        columns, *turned = zip(columns, *rows, strict=True)
        rows = [list(row) for row in turned]
    context.out.table(columns, rows)
    return 0


def _show_usage(args: Args, context: Context, user: str | None) -> int:
    if not args["history"]:
        if args["days"] is not None:
            raise Invalid("flag_needs_flag", flag="--days", other="--history")
        _show(context, context.client.quota(user))
        return 0
    days = context.client.quota_history(DAYS if args["days"] is None else args["days"], user)
    if context.out.json:
        context.out.value(days)
        return 0
    rows = [
        [day["date"], f"{day['minutes']:g}", f"{day['private_minutes']:g}", str(day["jobs"])]
        for day in days
    ]
    context.out.table(("date", "minutes", "private_minutes", "jobs"), rows)
    return 0


def _show(context: Context, view: dict[str, Any]) -> None:
    """One line for each limit: its name, what is used, what is allowed."""
    out = context.out
    if out.json:
        out.value(view)
        return
    rows = [
        [row["name"], _word(row["name"], row["used"]), _word(row["name"], row["limit"])]
        for row in view["limits"]
    ]
    out.table(("limit", "used", "of"), rows)
    out.line(f"user: {view['user_id']}")
    out.line(f"plan: {view['plan']}")
    if view["own_limits"]:
        out.line(f"own_limits: {','.join(view['own_limits'])}")
    out.line(f"max_priority: {view['max_priority']}")
    if view["minutes_left"] is not None:
        out.line(f"minutes_left: {view['minutes_left']:g}")
        out.line(f"renews: {view['renews']}")


def _word(name: str, value: float | None) -> str:
    if value is None:
        return _NONE
    return size(int(value)) if name in _SIZES else f"{value:g}"


def _user(args: Args) -> str:
    if not args["user"]:
        raise Invalid("quota_user_missing")
    user: str = args["user"]
    return user


_HISTORY = (
    Option("history", FLAG, ("minutes and jobs of each day", "按天显示使用记录")),
    Option(
        "days", NUMBER,
        ("number of days for --history, up to 400", "与 --history 合用：天数，最多 400"),
        shown_default=DAYS, metavar="N",
    ),
)  # fmt: skip
_USER = Option("user", TEXT, ("id of the user", "用户 ID"), metavar="USER_ID", required=True)

COMMANDS = (
    Command(
        "quota",
        own,
        (
            "Show your plan: each limit, what is used of it, the minutes left today.",
            "查看套餐：各项限额、已用量、今天剩余的分钟数。",
        ),
        options=(
            Option(
                "user", TEXT, ("show another user (admins only)", "查看其他用户（仅管理员）"),
                metavar="USER_ID",
            ),
            *_HISTORY,
        ),
        examples=("paddlecloud quota", "paddlecloud quota --history --days=7"),
    ),
    Command(
        "admin quota show",
        of_user,
        ("Show a user's plan and what is used of it.", "查看用户的套餐及用量。"),
        operand="user",
        options=(_USER, *_HISTORY),
        examples=("paddlecloud admin quota show zhangsan",),
    ),
    Command(
        "admin quota set",
        change,
        (
            "Give a user another plan, or single limits of their own.",
            "为用户更换套餐，或单独设置限额。",
        ),
        operand="user",
        options=(
            _USER,
            Option(
                "plan", TEXT, ("name of a plan, or default", "配置中的套餐，或 default"),
                metavar="PLAN",
            ),
            Option(
                "limit", LIST,
                (
                    "a limit of their own, may be repeated; unlimited removes a limit, plan "
                    "returns to that of the plan",
                    "单独设置的限额，可重复指定；unlimited 为不限，plan 为恢复套餐的限额",
                ),
                metavar="NAME=VALUE", offers=tuple(f"{name}=" for name in LIMITS),
            ),
        ),
        examples=(
            "paddlecloud admin quota set zhangsan --plan=big",
            "paddlecloud admin quota set zhangsan --limit running_jobs=5 --limit storage=50Gi",
        ),
    ),
    Command(
        "admin quota plans",
        plans,
        ("List the configured plans; * is the default.", "列出配置中的套餐，* 为默认套餐。"),
        examples=("paddlecloud admin quota plans",),
    ),
)  # fmt: skip
