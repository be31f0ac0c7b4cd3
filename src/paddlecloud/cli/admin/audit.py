"""`admin audit`: who changed what, from where and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from paddlecloud.cli.account_options import show_rows
from paddlecloud.cli.gen2020.list_jobs import asked_limit
from paddlecloud.cli.parser import FLAG, NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

COLUMNS = ("at", "actor", "source", "action", "target", "detail")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def run(args: Args, context: Context) -> int:
    since = None if args["since"] is None else moment(args["since"], datetime.now(UTC))
    rows = context.client.admin.audit(
        user=args["user"],
        since=None if since is None else since.timestamp(),
        limit=asked_limit(args),
    )
    for row in rows if not context.out.json else ():
        detail = row["detail"].items()
        row["detail"] = " ".join(f"{key}={value}" for key, value in detail if value is not None)
    return show_rows(context.out, COLUMNS, rows, ("source",))


def moment(text: str, now: datetime) -> datetime:
    """A date, a time (UTC unless it has a zone), or how long ago."""
    unit = _UNITS.get(text[-1:])
    count = text[:-1]
    try:
        if unit is not None and count.isascii() and count.isdigit():
            return now - timedelta(seconds=int(count) * unit)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise Invalid("since_invalid", value=text[:40] or '""') from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


COMMANDS = (
    Command(
        "admin audit",
        run,
        (
            "Print who changed what, newest first: users, keys, other people's jobs.",
            "查看变更记录，最新的在前：用户、密钥、对他人任务的操作。",
        ),
        options=(
            Option(
                "user", TEXT, ("only changes by or about this user", "由该用户执行或涉及该用户"),
                metavar="USER",
            ),
            Option(
                "since", TEXT,
                (
                    "since a date, a time, or so long ago: 2026-01-31, 7d",
                    "起始时间：日期、时间或多久之前，例 2026-01-31、7d",
                ),
                metavar="TIME",
            ),
            Option(
                "limit", NUMBER, ("show at most N rows", "最多显示的条数"), default=100, short="n",
                metavar="N",
            ),
            Option("all", FLAG, ("show all rows", "显示全部记录")),
        ),
        examples=(
            "paddlecloud admin audit --since=7d",
            "paddlecloud admin audit --user=alice --json",
        ),
    ),
)  # fmt: skip
