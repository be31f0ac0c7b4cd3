"""The list of commands: which words exist, what each is for, and which module knows the rest.

A module is imported only when its command is called (or when all are wanted: completion and the
reference), so a new command costs the others nothing.
"""

from __future__ import annotations

from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddlecloud.cli.options import Command, Text

#: Words, module, purpose, in the order of `--help`.
JOBS = (
    ("submit_job", "gen2.submit_job", ("run a directory of training code", "提交一个训练任务")),
    ("query_job", "gen2.query_job", ("show one job", "查询一个任务")),
    ("list_jobs", "gen2.list_jobs", ("list your jobs, newest first", "列出任务，最新的在前")),
    ("logs", "gen2.logs", ("print what a job wrote", "查看任务日志")),
    ("get_files", "gen2.get_files", ("list or download a job's files", "查看或下载任务文件")),
    ("kill_job", "gen2.kill_job", ("end a job", "结束任务")),
)
SYSTEM = (
    ("doctor", "system.doctor", ("check every link of the chain", "逐项检查整个链路")),
    ("config show", "system.config", ("print the configuration", "显示配置及其来源")),
    ("server start", "system.server", ("start the private server", "启动本机服务器")),
    ("server stop", "system.server", ("stop it; jobs go on", "停止本机服务器，任务继续运行")),
    ("server status", "system.server", ("say whether it runs", "查看本机服务器状态")),
    ("server logs", "system.server", ("print its log", "查看本机服务器日志")),
    ("admin gc", "system.admin", ("delete what is past its keeping time", "清理过期的任务和文件")),
    ("completion", "system.completion", ("print a completion script", "输出命令补全脚本")),
    ("version", "system.version", ("print the version", "显示版本")),
)
HIDDEN = (("get_fils", "gen2.get_files", ("the same as get_files", "同 get_files")),)
EVERY = JOBS + SYSTEM + HIDDEN
#: Groups of commands: the first word alone is not a command.
GROUPS = ("server", "config", "admin")


def find(words: Sequence[str]) -> tuple[Command, Sequence[str]]:
    """The command that the first word or two name, and the words after it."""
    name = words[0]
    if name in GROUPS:
        if len(words) < 2 or words[1].startswith("-"):
            raise Invalid("command_incomplete", group=name, known=", ".join(_within(name)))
        name, words = f"{name} {words[1]}", words[1:]
    command = load(name)
    if command is None:
        raise _unknown(name)
    return command, words[1:]


def load(name: str) -> Command | None:
    """The command of that name, from its module."""
    for known, module, _ in EVERY:
        if known == name:
            return _module(module)[name]
    return None


def load_all() -> list[Command]:
    """Every command that is not hidden, in the order of `--help`."""
    return [_module(module)[name] for name, module, _ in JOBS + SYSTEM]


def purpose(name: str) -> Text:
    return next(text for known, _, text in EVERY if known == name)


def _module(name: str) -> dict[str, Command]:
    from importlib import import_module  # noqa: PLC0415 - `--help` needs no command's module

    module = import_module(f"paddlecloud.cli.{name}")
    return {command.name: command for command in module.COMMANDS}


def _within(group: str) -> list[str]:
    return [name.split()[1] for name, _, _ in EVERY if name.startswith(group + " ")]


def _unknown(name: str) -> Invalid:
    from paddlecloud.cli.options import nearest  # noqa: PLC0415 - only a mistake pays for it

    meant = nearest(name, [known for known, _, _ in JOBS + SYSTEM])
    if meant is None:
        return Invalid("command_unknown", command=name or '""')
    return Invalid("command_meant", command=name, meant=meant)
