"""`admin pool list`: where jobs run, what is there and what of it is taken."""

from __future__ import annotations

from paddlecloud.cli.output import size
from paddlecloud.cli.parser import Command
from paddlecloud.cli.table import Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

COLUMNS = (
    Column("pool"),
    Column("backend", drop=2),
    Column("public", drop=3),
    Column("job_types", drop=1),
    Column("users", drop=4),
    Column("node"),
    Column("cpu"),
    Column("memory"),
    Column("gpu"),
    Column("seen_at", drop=5),
)


def list_pools(args: Args, context: Context) -> int:
    del args
    pools = context.client.admin.pools()
    out = context.out
    if out.json:
        out.value(pools)
        return 0
    rows = []
    for pool in pools:
        kinds, users = ",".join(pool["job_types"]), ",".join(pool["users"])
        head = [pool["name"], pool["backend"], str(int(pool["public"])), kinds, users]
        rows += [[*head, *_node(node)] for node in pool["nodes"]] or [[*head, "", "", "", "", ""]]
    out.table(COLUMNS, rows)
    for pool in pools:
        if pool["note"]:
            out.message(f"{pool['name']}: {pool['note']}")
    return 0


def _node(node: dict[str, Any]) -> list[str]:
    return [
        node["id"],
        f"{node['used_cpu']:g}/{node['cpu']:g}",
        f"{size(node['used_memory'])}/{size(node['memory'])}",
        f"{node['used_gpu']}/{node['gpu']}",
        node["seen_at"] or "",
    ]


COMMANDS = (
    Command(
        "admin pool list",
        list_pools,
        (
            "List pools in the order in which they are asked, with their machines: what is taken "
            "of what is there.",
            "按选择顺序列出资源池及其机器：已用量和总量。",
        ),
        examples=("paddlecloud admin pool list",),
    ),
)
