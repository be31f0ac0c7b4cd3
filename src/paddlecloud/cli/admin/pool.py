"""`admin pool …`: where jobs run, what is there and what of it is taken."""

from __future__ import annotations

from paddlecloud.cli.output import size
from paddlecloud.cli.parser import LIST, TEXT, Command, Option
from paddlecloud.cli.table import Column
from paddlecloud.model.errors import Invalid

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


def create(args: Args, context: Context) -> int:
    options: dict[str, Any] = {"kind": args["kind"] or "machines"}
    for text in args["set"]:
        key, equals, value = text.partition("=")
        if not equals:
            raise Invalid("pool_option", option=text)
        options[key] = _value(value)
    name = _name(args, "create")
    context.client.admin.create_pool(name, **options)
    return _done(context, "pool_created", name)


def delete(args: Args, context: Context) -> int:
    name = _name(args, "delete")
    context.client.admin.delete_pool(name)
    return _done(context, "pool_deleted", name)


def _name(args: Args, command: str) -> str:
    if not args["name"]:
        raise Invalid("name_missing", command=f"admin pool {command}")
    return str(args["name"])


def _done(context: Context, code: str, name: str) -> int:
    if context.out.json:
        context.out.value({"name": name})
    else:
        context.out.say(code, pool=name)
    return 0


def _value(text: str) -> object:
    """A value as in a settings file: true, 3, 1.5, or a text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _node(node: dict[str, Any]) -> list[str]:
    return [
        node["id"],
        f"{node['used_cpu']:g}/{node['cpu']:g}",
        f"{size(node['used_memory'])}/{size(node['memory'])}",
        f"{node['used_gpu']}/{node['gpu']}",
        node["seen_at"] or "",
    ]


NAME = Option("name", TEXT, ("name of the pool", "资源池名"), metavar="NAME", required=True)

COMMANDS = (
    Command(
        "admin pool create",
        create,
        (
            "Add a pool: it is used at once, after the pools of the settings file.",
            "新建资源池：立即生效，排在配置文件中的资源池之后。",
        ),
        operand="name",
        options=(
            NAME,
            Option(
                "kind", TEXT, ("machines, or another backend", "machines 或其他后端"),
                metavar="KIND", shown_default="machines",
            ),
            Option(
                "set", LIST, ("a key of [pools.NAME]; repeatable", "[pools.NAME] 的设置项，可重复"),
                metavar="KEY=VALUE",
            ),
        ),
        examples=("paddlecloud admin pool create gpus --kind=machines",),
    ),
    Command(
        "admin pool delete",
        delete,
        ("Delete a pool that was added and runs no jobs.", "删除已新建且没有任务运行的资源池。"),
        operand="name",
        options=(NAME,),
        examples=("paddlecloud admin pool delete gpus",),
    ),
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
)  # fmt: skip
