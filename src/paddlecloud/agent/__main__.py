"""Entry point of the agent: `python -m paddlecloud.agent --config PATH | --version | join …`.

The zygote is forked first, before anything but its own modules is imported, because every
supervisor is a copy of it. Arguments are parsed by hand for the same reason.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import paddlecloud.messages.tables  # noqa: F401 - now: an upgrade may replace files later
from paddlecloud import __version__
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.model.errors import PaddleCloudError

USAGE = "usage: python -m paddlecloud.agent --config PATH | --version | join | status | leave\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write(f"paddlecloud agent {__version__}\n")
        return 0
    if arguments[:1] and arguments[0] in ("join", "status", "leave"):
        from paddlecloud.agent._join import run as run_machine  # noqa: PLC0415 - it is no agent yet

        return run_machine(arguments, dict(os.environ))
    if len(arguments) != 2 or arguments[0] != "--config":
        sys.stderr.write(USAGE)
        return 2
    program = sys.argv[0]
    if program.endswith(".pyz") and os.path.islink(program):  # noqa: PTH114 - before pathlib
        # An upgrade changes the link, and Python reads from the file while it runs.
        real = os.path.realpath(program)
        os.execv(sys.executable, [sys.executable, real, *arguments])
    with suppress(OSError):
        os.setsid()
    # The parent's umask may be strict; files of jobs are created as in a login shell.
    os.umask(0o022)
    spawner = Spawner.start()

    from paddlecloud.agent.agent import run  # noqa: PLC0415 - the zygote must not hold all this

    try:
        path, environ = Path(arguments[1]), dict(os.environ)
        return run(path, spawner, lambda text: sys.stderr.write(f"{text}\n"), environ)
    except PaddleCloudError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
