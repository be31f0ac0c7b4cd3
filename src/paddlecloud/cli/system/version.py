"""`version`, also as `--version`."""

from __future__ import annotations

import sys

from paddlecloud import __version__
from paddlecloud.cli.parser import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    del args
    python = ".".join(str(number) for number in sys.version_info[:3])
    if context.out.json:
        context.out.value({"version": __version__, "python": python})
    else:
        context.out.line(f"paddlecloud {__version__}")
    return 0


COMMANDS = (
    Command(
        "version",
        run,
        ("Print the version of this program.", "显示本程序的版本。"),
        examples=("paddlecloud version", "paddlecloud --version"),
    ),
)
