"""`admin backup` and `admin restore`: a consistent copy of this machine's server, and its way back.

Both are processes of their own (`server/services/admin/backup.py`, `restore.py`).
"""

from __future__ import annotations

from pathlib import Path

from paddlecloud.cli.parser import FLAG, TEXT, Command, Option
from paddlecloud.cli.system.server import call_server
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def backup(args: Args, context: Context) -> int:
    more = ["--no-blobs"] if args["no_blobs"] else []
    return call_server(args, context, "--backup", _directory(args, "admin backup"), *more)


def restore(args: Args, context: Context) -> int:
    return call_server(args, context, "--restore", _directory(args, "admin restore"))


def _directory(args: Args, command: str) -> str:
    if not args["directory"]:
        raise Invalid("backup_directory_missing", command=command)
    return str(Path(args["directory"]).absolute())


COMMANDS = (
    Command(
        "admin backup",
        backup,
        (
            "On the server's machine: copy its database, its keys and the files of its store to a "
            "new directory, while it runs or not. --config is the server's settings file.",
            "在服务器所在机器上运行：将数据库、密钥和存储的文件复制到一个新目录，"
            "服务器运行与否均可。--config 为服务器的设置文件。",
        ),
        operand="directory",
        options=(
            Option(
                "directory", TEXT,
                ("where to write the backup; must not exist", "备份写入的目录，不能已存在"),
                metavar="DIR", completes="directory", required=True,
            ),
            Option(
                "no_blobs", FLAG,
                (
                    "leave out submitted files, outputs and logs, for a store with a backup of "
                    "its own",
                    "不复制提交的文件、输出和日志，适用于存储另有备份的情况",
                ),
                aliases=("no-blobs",),
            ),
        ),
        examples=(
            "paddlecloud admin backup /mnt/backup/monday",
            "paddlecloud admin backup /mnt/backup/monday --no_blobs --config server.toml",
        ),
    ),
    Command(
        "admin restore",
        restore,
        (
            "On the new server's machine: check a backup and fill an empty PADDLECLOUD_HOME from "
            "it. Jobs that were running count as lost. --config is the server's settings file.",
            "在新服务器所在机器上运行：检查备份，并恢复到空的 PADDLECLOUD_HOME。"
            "备份时正在运行的任务视为失联。--config 为服务器的设置文件。",
        ),
        operand="directory",
        options=(
            Option(
                "directory", TEXT, ("the backup", "备份所在目录"),
                metavar="DIR", completes="directory", required=True,
            ),
        ),
        examples=("PADDLECLOUD_HOME=/srv/new paddlecloud admin restore /mnt/backup/monday",),
    ),
)  # fmt: skip
