"""Escape sequences on a Windows console, with a recorded kernel32: not run on Windows."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from paddlecloud.cli import _windows_console
from paddlecloud.cli.output import Output
from tests.unit.cli.test_output import on_terminal


class Kernel:
    """Answers as kernel32 does; `mode` None is no console, `settable` False one that is too old."""

    def __init__(self, mode: int | None, settable: bool = True) -> None:
        self.mode = mode
        self.settable = settable
        self.calls: list[tuple[int, int]] = []

    def GetStdHandle(self, number: int) -> int:
        return -number

    def GetConsoleMode(self, handle: int, mode: Any) -> int:
        if self.mode is None:
            return 0
        ctypes.cast(mode, ctypes.POINTER(ctypes.c_ulong)).contents.value = self.mode
        return 1

    def SetConsoleMode(self, handle: int, mode: int) -> int:
        self.calls.append((handle, mode))
        return int(self.settable)


@pytest.mark.parametrize(
    ("stream", "kernel", "want", "calls"),
    [
        (1, Kernel(3), True, [(11, 7)]),
        (2, Kernel(3), True, [(12, 7)]),
        (1, Kernel(7), True, []),
        (1, Kernel(3, settable=False), False, [(11, 7)]),
        (1, Kernel(None), False, []),
    ],
)
def test_escapes_are_switched_on(
    stream: int, kernel: Kernel, want: bool, calls: list[tuple[int, int]]
) -> None:
    assert _windows_console.takes_escapes(stream, kernel) is want
    assert kernel.calls == calls


def test_a_system_without_consoles_has_none() -> None:
    assert _windows_console.takes_escapes(1) is False


@pytest.mark.parametrize("obeys", [True, False])
def test_a_console_that_prints_them_gets_no_colours(
    obeys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    monkeypatch.setattr("paddlecloud.cli.output.sys.platform", "win32")
    monkeypatch.setattr(_windows_console, "takes_escapes", lambda stream: obeys)
    out = Output("en", {})
    assert out.has_escapes is obeys
    assert ("\x1b" in out.state("failed")) is obeys
    assert ("\x1b" in out.error_state("failed")) is obeys
