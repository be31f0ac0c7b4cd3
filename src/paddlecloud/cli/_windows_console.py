"""Switches on the escape sequences of the Windows console, which old consoles print as text."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HANDLES = {1: -11, 2: -12}
"""Standard handles by the number of the stream."""
_VIRTUAL_TERMINAL = 0x0004


def takes_escapes(stream: int, kernel32: Any = None) -> bool:
    """Whether the console behind stdout (1) or stderr (2) obeys escape sequences from now on."""
    import ctypes  # noqa: PLC0415 - only a console pays for it

    try:
        kernel = kernel32 or getattr(ctypes, "WinDLL")("kernel32")  # noqa: B009 - only on Windows
        handle = kernel.GetStdHandle(_HANDLES[stream])
        mode = ctypes.c_ulong()
        if not kernel.GetConsoleMode(handle, ctypes.byref(mode)):
            return False
        if mode.value & _VIRTUAL_TERMINAL:
            return True
        return bool(kernel.SetConsoleMode(handle, mode.value | _VIRTUAL_TERMINAL))
    except (AttributeError, OSError):
        return False
