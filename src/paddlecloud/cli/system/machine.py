"""`machine join|status|leave`: this machine in a pool of a server. The agent does the work."""

from __future__ import annotations

import os
import sys

from paddlecloud.cli.parser import FLAG, LIST, NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

_VALUES = ("token", "name", "address", "gpu", "tls_sha256")


def join(args: Args, context: Context) -> int:
    if not args["url"] and args["token"]:
        raise Invalid("machine_no_url")
    words = [args["url"]] if args["url"] else []
    words += [f"--{key}={args[key]}" for key in _VALUES if args[key] is not None]
    words += [f"--label={label}" for label in args["label"] or []]
    return _run(context, "join", *words, *(["--install"] if args["install"] else []))


def status(args: Args, context: Context) -> int:
    del args
    return _run(context, "status")


def leave(args: Args, context: Context) -> int:
    return _run(context, "leave", *(["--force"] if args["force"] else []))


def _run(context: Context, *words: str) -> int:
    """Become the agent's command."""
    if sys.platform == "win32":
        raise Invalid("machine_windows")
    context.out.flush()
    environ = {**context.environ, "PADDLECLOUD_LANG": context.out.lang}
    program = [sys.executable, "-P", "-m", "paddlecloud.agent", *words]
    os.execve(program[0], program, environ)


COMMANDS = (
    Command(
        "machine join",
        join,
        (
            "Join this machine to a pool and run its agent in the foreground. The line with the "
            "token comes from `admin machine invite`. Without a token a machine that joined "
            "before runs again.",
            "把本机加入资源池，并在前台运行执行端（Agent）。含令牌的命令由 admin machine invite "
            "给出；已加入过的机器不带令牌即可再次运行。",
        ),
        operand="url",
        options=(
            Option("url", TEXT, ("URL of the server", "服务器地址"), metavar="URL"),
            Option("token", TEXT, ("join token", "加入令牌"), metavar="TOKEN"),
            Option(
                "name", TEXT, ("name of this machine", "本机名称"),
                metavar="NAME", shown_default=("its host name", "主机名"),
            ),
            Option(
                "label", LIST, ("label of this machine; again for more", "本机标签，可重复"),
                metavar="KEY=VALUE",
            ),
            Option(
                "address", TEXT, ("address for other machines", "其他机器访问本机的地址"),
                metavar="ADDRESS",
                shown_default=("that of its route to the server", "到服务器的路由所用的地址"),
            ),
            Option(
                "gpu", NUMBER, ("GPUs that jobs may use", "任务可用的 GPU 数"),
                metavar="N", shown_default=("all", "全部"),
            ),
            Option(
                "tls_sha256", TEXT,
                ("sha256 of a certificate to trust", "要信任的证书的 sha256"),
                metavar="DIGEST",
            ),
            Option(
                "install", FLAG,
                ("run it as a systemd service instead", "改为以 systemd 服务运行"),
            ),
        ),
        examples=("paddlecloud machine join https://server:8443 --token TOKEN --label=gpu=a100",),
    ),
    Command(
        "machine status",
        status,
        ("Show this machine as the server knows it.", "查看服务器所知的本机状态。"),
        examples=("paddlecloud machine status",),
    ),
    Command(
        "machine leave",
        leave,
        ("Take this machine out of its pool.", "让本机退出资源池。"),
        options=(
            Option("force", FLAG, ("also while jobs run here", "即使仍有任务在运行")),
        ),
        examples=("paddlecloud machine leave",),
    ),
)  # fmt: skip
