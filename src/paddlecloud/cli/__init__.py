"""The command line: flags in, one call to the client, lines out. Entry point: `main.main`.

Each command is a `parser.Command` in a module of its own, which `registry` loads when it is typed;
parsing, `--help`, the completion scripts and the reference are made from these values.

In the program itself Ctrl-C ends the process silently until `main` runs: the first milliseconds go
to imports, and their traceback is of no use.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the built-in part of signal, which imports enum
import sys

#: How the path of the program ends, called by its name or as a module.
_PROGRAM = ("/paddlecloud", "/paddlecloud/__main__.py")


def raise_interrupts() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again, if it did before."""
    if _silenced:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


_raises = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
_silenced = _raises and bool(sys.argv) and sys.argv[0].endswith(_PROGRAM)
if _silenced:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
