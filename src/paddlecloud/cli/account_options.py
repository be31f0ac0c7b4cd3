"""Options and output that the commands about users and tokens share, for users and admins."""

from __future__ import annotations

from paddlecloud.cli.output import key_lines, one_line
from paddlecloud.cli.parser import TEXT, Option
from paddlecloud.cli.table import Column
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddlecloud.cli.output import Output
    from paddlecloud.cli.parser import Args

USER = Option("user", TEXT, ("id of the user", "用户 ID"), metavar="USER", required=True)
AK = Option("ak", TEXT, ("the access key", "密钥的 ak"), metavar="AK", required=True)
NAME = Option("name", TEXT, ("a name for the key", "密钥的名称"), default="", metavar="NAME")
SCOPE = Option(
    "scope", TEXT, ("what the key may do", "密钥的权限"), default="full",
    choices=("full", "read"),
)  # fmt: skip
TOKEN_COLUMNS = (
    "ak", "user_id", "name", "scope", "origin", "created_at", "last_used_at", "revoked_at",
)  # fmt: skip
TOKEN_DROPPED = ("origin", "created_at", "revoked_at", "last_used_at")


def wanted_user(args: Args, command: str) -> str:
    user: str | None = args["user"]
    if not user:
        raise Invalid("user_id_missing", command=command)
    return user


def wanted_key(args: Args, command: str) -> str:
    ak: str | None = args["ak"]
    if not ak:
        raise Invalid("token_missing", command=command)
    return ak


def show_rows(
    out: Output,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    dropped: Sequence[str] = (),
) -> int:
    """Rows as a table, or as they are with --json. A narrow terminal loses the `dropped` columns,
    the first one first."""
    if out.json:
        out.value(list(rows))
        return 0
    ranks = {name: rank for rank, name in enumerate(reversed(dropped), 1)}
    shown = [Column(name, drop=ranks.get(name, 0)) for name in columns]
    out.table(shown, [[one_line(row.get(key)) for key in columns] for row in rows])
    return 0


def show_one(out: Output, value: Mapping[str, object]) -> int:
    """One thing as `key: value` lines, or as it is with --json."""
    if out.json:
        out.value(value)
    else:
        for line in key_lines(value, value):
            out.line(line)
    return 0


def show_new_token(out: Output, made: Mapping[str, object]) -> int:
    """The only time that a secret key is shown: the answer on stdout, the warning beside it."""
    out.say("secret_once")
    return show_one(out, made)
