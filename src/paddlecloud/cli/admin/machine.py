"""`admin machine …`: machines that join a pool with a token."""

from __future__ import annotations

from paddlecloud.cli.account_options import show_one
from paddlecloud.cli.output import size
from paddlecloud.cli.parser import LIST, NUMBER, TEXT, Command, Option
from paddlecloud.cli.table import Column
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

COLUMNS = (
    Column("name"),
    Column("pool", drop=5),
    Column("state"),
    Column("cpu"),
    Column("memory", drop=1),
    Column("gpu"),
    Column("labels", drop=2),
    Column("address", drop=3),
    Column("version", drop=4),
    Column("jobs"),
)


def invite(args: Args, context: Context) -> int:
    if args["pool"] is None:
        raise Invalid("name_missing", command="admin machine invite --pool=")
    seconds = _seconds(args["ttl"] or "1h")
    if seconds is None:
        raise Invalid("machine_ttl", ttl=args["ttl"])
    answer = context.client.admin.invite_machines(args["pool"], uses=args["uses"] or 1, ttl=seconds)
    if context.out.json:
        context.out.value(answer)
        return 0
    pinned = f" --tls_sha256 {answer['tls_sha256']}" if answer["tls_sha256"] else ""
    rest = f"{answer['url']} --token {answer['token']}{pinned}"
    context.out.line(f"paddlecloud machine join {rest}")
    package = f"{answer['url']}/api/v1/agent/package/{answer['agent_sha256']}"
    insecure = "k" if answer["tls_sha256"] else ""
    file = "paddlecloud-agent.pyz"
    context.out.say("machine_invited", uses=answer["uses"], until=answer["expires_at"])
    context.out.line(
        f"curl -fsS{insecure} {package} -o {file}"
        f" && echo '{answer['agent_sha256']}  {file}' | sha256sum -c --quiet"
        f" && python3 {file} join {rest}"
    )
    return 0


def list_machines(args: Args, context: Context) -> int:
    del args
    found = context.client.admin.machines()
    if context.out.json:
        context.out.value(found)
    else:
        context.out.table(COLUMNS, [_row(machine) for machine in found])
    return 0


def show(args: Args, context: Context) -> int:
    return show_one(context.out, context.client.admin.machine(_name(args, "show")))


def label(args: Args, context: Context) -> int:
    labels: dict[str, str | None] = {}
    for text in args["label"] or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise Invalid("machine_label", label=text)
        labels[key] = value or None
    name = _name(args, "label")
    return show_one(context.out, context.client.admin.set_machine(name, labels=labels))


def drain(args: Args, context: Context) -> int:
    name, reason = _name(args, "drain"), args["reason"] or ""
    found = context.client.admin.set_machine(name, drained=True, reason=reason)
    return show_one(context.out, found)


def undrain(args: Args, context: Context) -> int:
    name = _name(args, "undrain")
    return show_one(context.out, context.client.admin.set_machine(name, drained=False))


def remove(args: Args, context: Context) -> int:
    name = _name(args, "remove")
    context.client.admin.remove_machine(name)
    if context.out.json:
        context.out.value({"name": name})
    else:
        context.out.say("machine_removed", name=name)
    return 0


def _seconds(text: str) -> int | None:
    """Of 90s, 30m, 2h, 1d."""
    number, unit = text[:-1], {"s": 1, "m": 60, "h": 3600, "d": 86_400}.get(text[-1:])
    return int(number) * unit if unit and number.isdigit() else None


def _name(args: Args, command: str) -> str:
    if not args["name"]:
        raise Invalid("name_missing", command=f"admin machine {command}")
    return str(args["name"])


def _row(machine: dict[str, Any]) -> list[str]:
    return [
        machine["name"],
        machine["pool"],
        machine["state"],
        f"{machine['used_cpu']:g}/{machine['cpu']:g}",
        f"{size(machine['used_memory'])}/{size(machine['memory'])}",
        f"{machine['used_gpu']}/{machine['gpu']}",
        ",".join(f"{key}={value}" for key, value in sorted(machine["labels"].items())),
        machine["address"],
        machine["version"],
        str(len(machine["jobs"])),
    ]


NAME = Option("name", TEXT, ("name of the machine", "机器名"), metavar="NAME", required=True)

COMMANDS = (
    Command(
        "admin machine invite",
        invite,
        (
            "Print a line that joins a machine to a pool, to paste there. The token in it ends "
            "with its uses or its time.",
            "输出一行命令，在要加入资源池的机器上粘贴执行。其中的令牌在用完次数或到期后失效。",
        ),
        options=(
            Option(
                "pool", TEXT, ("pool of kind machines", "machines 类资源池"),
                metavar="POOL", required=True,
            ),
            Option(
                "uses", NUMBER, ("how many machines may join with it", "可加入的机器数"),
                metavar="N", shown_default=1,
            ),
            Option(
                "ttl", TEXT, ("how long it is valid", "有效时间"),
                metavar="TIME", shown_default="1h",
            ),
        ),
        examples=("paddlecloud admin machine invite --pool=gpus --uses=3 --ttl=2h",),
    ),
    Command(
        "admin machine list",
        list_machines,
        ("List the machines that joined.", "列出已加入的机器。"),
        examples=("paddlecloud admin machine list",),
    ),
    Command(
        "admin machine show",
        show,
        ("Show one machine.", "查看一台机器。"),
        operand="name",
        options=(NAME,),
        examples=("paddlecloud admin machine show gpu-01",),
    ),
    Command(
        "admin machine label",
        label,
        (
            "Set labels of a machine; an empty value removes one. Jobs ask for them with "
            "--require.",
            "设置机器的标签，值为空则删除。任务用 --require 指定标签。",
        ),
        operand="name",
        options=(
            NAME,
            Option(
                "label", LIST, ("label to set; again for more", "要设置的标签，可重复"),
                metavar="KEY=VALUE", required=True,
            ),
        ),
        examples=("paddlecloud admin machine label gpu-01 --label=gpu=a100",),
    ),
    Command(
        "admin machine drain",
        drain,
        (
            "Take no new jobs on a machine; those that run there go on.",
            "不再向机器分配新任务，正在运行的任务继续。",
        ),
        operand="name",
        options=(
            NAME,
            Option("reason", TEXT, ("why, for others", "原因"), metavar="TEXT"),
        ),
        examples=("paddlecloud admin machine drain gpu-01 --reason='new driver'",),
    ),
    Command(
        "admin machine undrain",
        undrain,
        ("Take jobs on a machine again.", "恢复向机器分配任务。"),
        operand="name",
        options=(NAME,),
        examples=("paddlecloud admin machine undrain gpu-01",),
    ),
    Command(
        "admin machine remove",
        remove,
        (
            "Remove a machine: its key is revoked at once, and its replicas are lost.",
            "移除机器：立即吊销其密钥，其上的实例丢失。",
        ),
        operand="name",
        options=(NAME,),
        examples=("paddlecloud admin machine remove gpu-01",),
    ),
)  # fmt: skip
