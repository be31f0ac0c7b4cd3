"""`admin verify`: read the stored files of this machine's server again and report damaged ones.

The check is a process of its own beside the server (`server/services/files/verify.py`).
"""

from __future__ import annotations

from paddlecloud.cli.parser import FLAG, TEXT, Command, Option
from paddlecloud.cli.system.server import call_server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    """1 if a file is damaged or missing, for scripts that run it at night."""
    flags = ["--verify"]
    flags += ["--repair"] if args["repair"] else []
    flags += ["--user", args["user"]] if args["user"] else []
    return call_server(args, context, *flags)


COMMANDS = (
    Command(
        "admin verify",
        run,
        (
            "On the server's machine: read every stored file again and compare its sha256; a "
            "bucket is downloaded for that. --config is the server's settings file.",
            "在服务器所在机器上运行：重新读取所有存储的文件并核对 sha256；"
            "使用对象存储时会全部下载一遍。--config 为服务器的设置文件。",
        ),
        options=(
            Option(
                "user", TEXT, ("only files of this user", "只检查该用户的文件"), metavar="USER",
            ),
            Option(
                "repair", FLAG,
                (
                    "move damaged submitted files aside: the next submit uploads them again",
                    "移走损坏的提交文件，下次提交时重新上传",
                ),
            ),
        ),
        examples=("paddlecloud admin verify", "paddlecloud admin verify --user=alice --json"),
    ),
)  # fmt: skip
