"""The list of commands: which words exist, what each is for, and which module knows the rest.

A module is imported only when its command is called (or when all are wanted: completion and the
reference), so a new command costs the others nothing.
"""

from __future__ import annotations

from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddlecloud.cli.parser import Command, Text

#: Words, module, purpose, in the order of `help all`.
JOBS = (
    ("submit_job", "gen2020.submit_job", ("run a directory of training code", "提交一个训练任务")),
    ("query_job", "gen2020.query_job", ("show one job in detail", "查询一个任务")),
    ("list_jobs", "gen2020.list_jobs", ("list your jobs, newest first", "列出任务，最新的在前")),
    ("logs", "gen2020.logs", ("print the log of a job", "查看任务日志")),
    ("top", "gen2020.top", ("CPU, memory and GPU in use", "查看运行中各实例的用量")),
    ("exec", "gen2020.exec", ("run a command in a running job", "在运行中的实例上执行命令")),
    ("port-forward", "gen2020.port_forward", ("open a port of a running job", "转发任务的端口")),
    ("get_files", "gen2020.get_files", ("list or download a job's files", "查看或下载任务文件")),
    ("kill_job", "gen2020.kill_job", ("end a job", "结束任务")),
    ("delete_job", "gen2020.delete_job", ("delete an ended job", "删除已结束的任务")),
    ("rerun", "gen2020.rerun", ("run a job again", "再次运行任务")),
    ("diff", "gen2020.diff", ("compare two jobs", "比较两个任务")),
    ("plsc", "gen2020.plsc", ("submit the built-in example", "提交内置的分类示例")),
)
ACCOUNT = (
    ("gen_token", "gen2020.gen_token", ("get and save your keys", "申请并保存密钥")),
    ("token list", "account.token", ("list your keys", "列出自己的密钥")),
    ("token create", "account.token", ("create another pair of keys", "新建一对密钥")),
    ("token revoke", "account.token", ("revoke a key", "吊销密钥")),
    ("secret set", "account.secret", ("keep a secret for your jobs", "保存供任务使用的机密")),
    ("secret list", "account.secret", ("list your secrets", "列出自己的机密")),
    ("secret rm", "account.secret", ("delete a secret", "删除机密")),
    (
        "notifications show",
        "account.notifications",
        ("show your notifications", "查看通知设置"),
    ),
    (
        "notifications set",
        "account.notifications",
        ("choose your notifications", "设置通知"),
    ),
    (
        "notifications test",
        "account.notifications",
        ("send a test notification", "立即发送测试通知"),
    ),
    ("quota", "account.quota", ("show your plan and its usage", "查看套餐和用量")),
)
SYSTEM = (
    ("doctor", "system.doctor", ("check that everything works", "逐项检查各个环节")),
    ("config show", "system.config", ("print the configuration", "显示配置及其来源")),
    ("server start", "system.server", ("start the embedded server", "启动本机服务器")),
    ("server run", "system.server", ("run a server in the foreground", "在前台运行服务器")),
    ("server check", "system.server", ("check a server's settings", "检查服务器设置")),
    ("server stop", "system.server", ("stop the embedded server", "停止本机服务器，任务继续运行")),
    ("server status", "system.server", ("show whether it is running", "查看本机服务器状态")),
    ("server logs", "system.server", ("print its log", "查看本机服务器日志")),
    ("machine join", "system.machine", ("join this machine to a pool", "把本机加入资源池")),
    ("machine status", "system.machine", ("show this machine", "查看本机状态")),
    ("machine leave", "system.machine", ("leave the pool", "让本机退出资源池")),
    ("completion", "system.completion", ("print a completion script", "输出命令补全脚本")),
    ("version", "system.version", ("print the version", "显示版本")),
)
DATA = (
    (
        "data ls",
        "data.inspect",
        ("list data files: records, chunks", "列出数据文件的记录数和块数"),
    ),
    ("data head", "data.inspect", ("print the first records", "查看最前面的记录")),
    ("data stat", "data.inspect", ("sizes and compression", "统计数据文件")),
    ("data verify", "data.inspect", ("check data files", "校验数据文件")),
    ("data repair", "data.repair", ("repair a data file", "修复数据文件")),
    ("data convert", "data.convert", ("write records into shards", "将记录写成多个分片")),
    ("data split", "data.convert", ("split into files of N records", "按记录数拆分数据")),
)
ADMIN = (
    ("admin user list", "admin.user", ("list all users", "列出用户")),
    ("admin user show", "admin.user", ("show one user", "查看用户")),
    ("admin user create", "admin.user", ("create a user", "新建用户")),
    ("admin user set", "admin.user", ("change a user", "修改用户")),
    ("admin user disable", "admin.user", ("lock a user out", "停用用户")),
    ("admin user enable", "admin.user", ("let a user in again", "启用用户")),
    ("admin user delete", "admin.user", ("delete a user without jobs", "删除没有任务的用户")),
    ("admin token list", "admin.token", ("list the keys of all users", "列出所有密钥")),
    ("admin token create", "admin.token", ("create keys for a user", "为用户新建密钥")),
    ("admin token revoke", "admin.token", ("revoke a key", "吊销密钥")),
    ("admin job list", "admin.job", ("list the jobs of all users", "列出所有任务")),
    ("admin job show", "admin.job", ("show a job of any user", "查看任何任务")),
    ("admin job kill", "admin.job", ("end a job of any user", "结束任何任务")),
    ("admin machine invite", "admin.machine", ("let machines join a pool", "邀请机器加入资源池")),
    ("admin machine list", "admin.machine", ("list machines that joined", "列出已加入的机器")),
    ("admin machine show", "admin.machine", ("show one machine", "查看机器")),
    ("admin machine label", "admin.machine", ("set labels of a machine", "设置机器标签")),
    ("admin machine drain", "admin.machine", ("take no new jobs on it", "不再分配新任务")),
    ("admin machine undrain", "admin.machine", ("take jobs on it again", "恢复分配任务")),
    ("admin machine remove", "admin.machine", ("remove a machine", "移除机器")),
    ("admin pool create", "admin.pool", ("add a pool", "新建资源池")),
    ("admin pool delete", "admin.pool", ("delete an added pool", "删除资源池")),
    ("admin pool list", "admin.pool", ("list pools and machines", "列出资源池和机器")),
    ("admin quota show", "account.quota", ("show a user's plan", "查看用户套餐")),
    ("admin quota set", "account.quota", ("change a user's plan", "修改用户套餐")),
    ("admin quota plans", "account.quota", ("list the plans", "列出套餐")),
    ("admin audit", "admin.audit", ("who changed what, and when", "查看变更记录")),
    ("admin gc", "admin.gc", ("delete expired jobs and files", "清理过期的任务和文件")),
    ("admin backup", "admin.backup", ("copy database, keys and files", "备份数据库、密钥和文件")),
    ("admin restore", "admin.backup", ("fill a home from a backup", "从备份恢复")),
    ("admin verify", "admin.verify", ("find damaged stored files", "查找已损坏的存储文件")),
)
HIDDEN = (
    ("get_fils", "gen2020.get_files", ("the same as get_files", "同 get_files")),
    ("complete_jobs", "system.completion", ("jobs for a completion script", "补全任务")),
)
#: The sections of `help all` and of the reference: title and commands.
SECTIONS = (
    (("Jobs", "任务"), JOBS),
    (("Your account", "账户"), ACCOUNT),
    (("Server and this machine", "服务器与本机"), SYSTEM),
    (("Data files", "数据文件"), DATA),
    (("Administration", "管理"), ADMIN),
)
#: What `--help` shows: the commands of every day.
FIRST = (
    (("Run", "运行任务"), ("submit_job", "rerun", "kill_job")),
    (("Watch", "查看任务"), ("list_jobs", "query_job", "logs", "top")),
    (("Fetch", "取回结果"), ("get_files",)),
    (("Set up", "环境与账户"), ("gen_token", "doctor", "server stop")),
)
EVERY = JOBS + ACCOUNT + SYSTEM + DATA + ADMIN + HIDDEN
#: Groups of commands: these words alone are not a command.
GROUPS = (
    "server", "config", "token", "secret", "machine", "notifications", "data",
    "admin", "admin user", "admin token", "admin job", "admin machine",
    "admin pool", "admin quota",
)  # fmt: skip


def find(words: Sequence[str]) -> tuple[Command, Sequence[str]]:
    """The command that the first words name, and the words after it."""
    depth = group_depth(words)
    group, rest = " ".join(words[:depth]), words[depth:]
    if depth and (not rest or rest[0].startswith("-")):
        raise Invalid("command_incomplete", group=group, known=", ".join(within(group)))
    name = " ".join(words[: depth + 1])
    command = load(name)
    if command is None:
        raise _unknown(words, group)
    return command, rest[1:]


def group_depth(words: Sequence[str]) -> int:
    """How many of the first words name a group: 2 for `admin user list`, 0 for `query_job x`."""
    depth = 0
    while depth < len(words) and " ".join(words[: depth + 1]) in GROUPS:
        depth += 1
    return depth


def within(group: str) -> list[str]:
    """The words that may follow those of a group."""
    names = [name for name, _, _ in EVERY if name.startswith(group + " ")]
    return list(dict.fromkeys(name[len(group) + 1 :].split()[0] for name in names))


def load(name: str) -> Command | None:
    """The command of that name, from its module."""
    for known, module, _ in EVERY:
        if known == name:
            return _module(module)[name]
    return None


def load_all() -> list[Command]:
    """Every command that is not hidden, in the order of `help all`."""
    return [_module(module)[name] for _, table in SECTIONS for name, module, _ in table]


def purpose(name: str) -> Text:
    return next(text for known, _, text in EVERY if known == name)


def _module(name: str) -> dict[str, Command]:
    from importlib import import_module  # noqa: PLC0415 - `--help` needs no command's module

    module = import_module(f"paddlecloud.cli.{name}")
    return {command.name: command for command in module.COMMANDS}


def _unknown(words: Sequence[str], group: str) -> Invalid:
    from paddlecloud.cli import _suggestions  # noqa: PLC0415 - only a mistake pays for it

    typed = words[: len(group.split()) + 1]
    name = " ".join(typed) or '""'
    meant = _suggestions.command(words, group)
    if meant is not None:
        shown = " ".join(words[: max(len(typed), len(meant.split()))]) if not group else name
        return Invalid("command_meant", command=shown, meant=meant)
    if group:
        known = ", ".join(within(group))
        return Invalid("command_unknown_in", command=name, group=group, known=known)
    return Invalid("command_unknown", command=name)
