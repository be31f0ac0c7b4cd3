"""`exec -it`: connects the terminal of this process with that of a command beside a worker.

The local terminal is in raw mode until then, so that every key, Ctrl-C too, goes to the command. It
is restored however this ends, also by a signal.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused, Unreachable
from paddlecloud.net.tunnel_end import FileEnd, Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from paddlecloud.client.exec import Command

_ENDING = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT")


def describe(environ: Mapping[str, str]) -> dict[str, object]:
    """The terminal of this process; an error if it has none, or this system is not supported."""
    try:
        import termios  # noqa: F401, PLC0415 - not on Windows
    except ImportError:
        raise Refused("exec_terminal_windows") from None
    if not (_is_terminal(sys.stdin.fileno()) and _is_terminal(sys.stdout.fileno())):
        raise Invalid("exec_terminal_missing")
    rows, columns = _size()
    return {"term": environ.get("TERM", ""), "rows": rows, "columns": columns}


def attach(command: Command) -> None:
    """Be the terminal of a command until it has ended; Unreachable if the connection broke."""
    tunnel = command.open_terminal()
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)

    def resized() -> None:
        with suppress(BlockingIOError):
            os.read(reader, 4096)
        relay.control({"resize": _size()})

    local = FileEnd(sys.stdin.fileno(), sys.stdout.fileno())
    relay = Relay(tunnel, local, wake=(reader, resized))
    try:
        with _raw_mode(sys.stdin.fileno()), _signals(writer):
            resized()  # the size may have changed since the command was ordered
            in_order = relay.run()
    finally:
        os.close(reader)
        os.close(writer)
    if not in_order:
        try:
            command.stop()
        except PaddleCloudError as error:
            if not isinstance(error, Unreachable):
                raise  # why it was cut: the key was revoked
        raise Unreachable("exec_terminal_lost", worker=command.view["worker"])
    for _ in command.output():  # until its end is known
        pass


@contextmanager
def _raw_mode(fd: int) -> Iterator[None]:
    import termios  # noqa: PLC0415 - not on Windows
    import tty  # noqa: PLC0415 - as above

    saved = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, saved)


@contextmanager
def _signals(writer: int) -> Iterator[None]:
    """Have SIGWINCH write to a pipe, and signals that end this process raise SystemExit."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None)}
    for name in _ENDING:
        number = getattr(signal, name)
        handlers[number] = signal.signal(number, end)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _size() -> tuple[int, int]:
    """Rows and columns."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 24, 80
    return found.lines, found.columns


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
