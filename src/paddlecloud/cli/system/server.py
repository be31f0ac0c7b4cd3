"""`server start|run|check|stop|status|logs`: the server of this machine, embedded or of a team.

For start, run and check `--config` is the settings file of the server: client.conf
does not concern them.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep

from paddlecloud.cli.parser import FLAG, NUMBER, Command, Option
from paddlecloud.client import local_server
from paddlecloud.client.sdk import server_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

#: Seconds between two reads of a followed log.
INTERVAL = 0.2


def start(args: Args, context: Context) -> int:
    home, settings = _home(context), _settings(args)
    if not settings:
        _mention_remote(context)
    before = local_server.read_info(home).get("boot")
    out = context.out
    aside = _aside(home)
    endpoint = local_server.ensure(
        home, context.environ, out.say, settings=settings, lang=out.lang, fresh=args["fresh"]
    )
    for path in sorted(_aside(home) - aside):
        out.say("server_fresh", path=path)
    if settings and endpoint.boot == before:
        out.say("server_settings_later", path=settings)
    if out.json:
        out.value(local_server.status(home))
    else:
        out.line(str(local_server.read_info(home).get("public_url") or endpoint.url))
    return 0


def run(args: Args, context: Context) -> int:
    """Become the server: the process that started this command, such as systemd, watches it."""
    local_server.check_installed()
    home, lang = _home(context), context.out.lang
    more = ["--fresh"] if args["fresh"] else []
    words = local_server.command(home, _settings(args), "--foreground", "--lang", lang, *more)
    context.out.flush()
    os.execve(words[0], words, local_server.server_environ(context.environ))


def check(args: Args, context: Context) -> int:
    return call_server(args, context, "--check")


def call_server(args: Args, context: Context, *flags: str) -> int:
    """Run the server's program with these flags to its end; its exit code."""
    from subprocess import call  # noqa: PLC0415 - 13 ms that no other command needs

    local_server.check_installed()
    more = [*flags, "--lang", context.out.lang, *(["--json"] if context.out.json else [])]
    words = local_server.command(_home(context), _settings(args), *more)
    context.out.flush()
    return call(words, env=local_server.server_environ(context.environ))


def stop(args: Args, context: Context) -> int:
    del args
    home = context.config.home
    stopped = local_server.stop(home)
    has_agent = local_server.has_agent(home)
    if context.out.json:
        context.out.value({"stopped": stopped, "agent_running": has_agent})
    elif not stopped:
        context.out.say("server_was_off")
    else:
        context.out.say("server_stopped" if has_agent else "server_stopped_idle")
    return 0


def status(args: Args, context: Context) -> int:
    """Exit code 0 when it is ready, 1 when it is not."""
    del args
    _mention_remote(context)
    home = context.config.home
    found = local_server.status(home)
    out = context.out
    if out.json:
        out.value(found)
    elif found["ready"]:
        url = local_server.read_info(home).get("public_url") or found["url"]
        out.sentence(out.text("server_running", url=url, pid=found["pid"]))
    elif found["pid"]:
        out.sentence(out.text("server_unwell", pid=found["pid"], log=local_server.log_path(home)))
    else:
        out.sentence(out.text("server_not_running"))
    return 0 if found["ready"] else 1


def logs(args: Args, context: Context) -> int:
    path = Path(local_server.log_path(context.config.home))
    out = context.out
    if not path.exists():
        out.say("server_no_log", path=path)
        return 1
    before = path.stat()
    lines = local_server.last_lines(str(path), args["lines"], size=before.st_size)
    if out.json:
        out.value({"path": str(path), "lines": lines})
        return 0
    for line in lines:
        out.line(line)
    if args["follow"]:
        _follow(path, before, context)
    return 0


def _follow(path: Path, before: os.stat_result, context: Context) -> None:
    """Print what is appended to a log, across rotations, until it is interrupted."""
    position = before.st_size
    context.out.raw(b"")  # the lines printed so far must not wait for the next one
    while True:
        sleep(INTERVAL)
        try:
            now = path.stat()
        except FileNotFoundError:
            continue
        if now.st_ino != before.st_ino or now.st_size < position:
            position = 0
        before = now
        if now.st_size > position:
            with path.open("rb") as file:
                file.seek(position)
                data = file.read()
            position += len(data)
            context.out.raw(data)


def _aside(home: str) -> set[str]:
    """What fresh starts of this home moved aside."""
    return {str(path) for path in Path(home).glob("*.aside-*")}


def _home(context: Context) -> str:
    from paddlecloud.client.config.resolve import resolve  # noqa: PLC0415 - as in Context

    return resolve({}, context.environ).home


def _settings(args: Args) -> str:
    """An absolute path: the server works in another directory."""
    return str(Path(args["config"]).absolute()) if args["config"] else ""


def _mention_remote(context: Context) -> None:
    if not context.config.embedded:
        context.out.say("server_is_remote", url=server_url(context.config))


FRESH = Option(
    "fresh", FLAG,
    (
        "if the database was lost: start without it; the old keys and files are moved aside, "
        "nothing is deleted",
        "数据库丢失时重新开始：原有的密钥和文件会移到一旁，不会删除",
    ),
)  # fmt: skip

COMMANDS = (
    Command(
        "server start",
        start,
        (
            "Start the embedded server of this machine if it does not run, and print its address. "
            "--config is its settings file.",
            "启动本机服务器（如未运行），并输出其地址。--config 为服务器的设置文件。",
        ),
        options=(FRESH,),
        examples=("paddlecloud server start", "paddlecloud server start --config server.toml"),
    ),
    Command(
        "server run",
        run,
        (
            "Run the server in the foreground, with its log on stderr, as systemd and containers "
            "want it. --config is its settings file.",
            "在前台运行服务器，日志输出到 stderr，适用于 systemd 和容器。"
            "--config 为服务器的设置文件。",
        ),
        options=(FRESH,),
        examples=("paddlecloud server run --config server.toml",),
    ),
    Command(
        "server check",
        check,
        (
            "Check the settings of the server and everything they name: certificate, database, "
            "store, mail. Exit code 0 if it could start. --config is the settings file.",
            "检查服务器的设置及其涉及的证书、数据库、存储和邮件服务器；可以启动时退出码为 0。"
            "--config 为服务器的设置文件。",
        ),
        examples=("paddlecloud server check --config server.toml",),
    ),
    Command(
        "server stop",
        stop,
        (
            "Stop the embedded server. Running jobs continue, and the next start adopts them; "
            "without any, the agent ends too.",
            "停止本机服务器。运行中的任务不受影响，下次启动时继续管理；没有运行中的任务时，"
            "执行端（Agent）也一并结束。",
        ),
        examples=("paddlecloud server stop",),
    ),
    Command(
        "server status",
        status,
        (
            "Show whether the embedded server is ready; exit code 0 if it is, 1 if not.",
            "查看本机服务器是否就绪；就绪时退出码为 0，否则为 1。",
        ),
        examples=("paddlecloud server status --json",),
    ),
    Command(
        "server logs",
        logs,
        ("Print the end of the embedded server's own log.", "查看本机服务器自身日志的末尾。"),
        options=(
            Option("follow", FLAG, ("go on as it grows", "持续输出"), short="f"),
            Option(
                "lines", NUMBER, ("the last N lines", "最后 N 行"), short="n", metavar="N",
                default=200,
            ),
        ),
        examples=("paddlecloud server logs -n 20 -f",),
    ),
)  # fmt: skip
