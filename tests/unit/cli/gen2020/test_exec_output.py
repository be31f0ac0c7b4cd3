"""What exec does while nobody takes its output, and when nobody will any more."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddlecloud.cli.context import Context
from paddlecloud.cli.gen2020 import exec as exec_
from paddlecloud.client.exec import Command
from paddlecloud.model.errors import TooLarge


class Endless:
    """A command that prints until nobody listens."""

    def __init__(self) -> None:
        self.held = Event()
        self.stops = 0

    def output(self) -> Iterator[tuple[str, bytes]]:
        while True:
            yield "out", b"line\n"

    def hold(self) -> None:
        self.held.set()

    def stop(self) -> None:
        self.stops += 1


def copy(command: Endless, raw: Any) -> None:
    context = SimpleNamespace(out=SimpleNamespace(json=False, raw=raw))
    exec_._copy(cast(Command, command), cast(Context, context), {})


def test_it_holds_the_command_while_its_output_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exec_, "HOLD_SECONDS", 0.01)
    monkeypatch.setattr(exec_, "DRAIN_SECONDS", 0.0)
    command, seen = Endless(), []

    def pager(_data: bytes) -> None:
        seen.append(command.held.wait(60))
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        copy(command, pager)
    assert seen == [True]


def test_it_does_not_take_all_that_is_on_its_way_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exec_, "DRAIN_SECONDS", 0.0)
    command = Endless()

    def closed(_data: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        copy(command, closed)
    assert command.stops == 1


def test_more_than_a_json_value_should_hold_stops_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exec_, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(exec_, "MOST_JSON", 12)
    command, kept = Endless(), {"out": bytearray(), "err": bytearray()}
    context = SimpleNamespace(out=SimpleNamespace(json=True))
    with pytest.raises(TooLarge, match="without --json") as caught:
        exec_._copy(cast(Command, command), cast(Context, context), kept)
    assert (command.stops, bytes(kept["out"])) == (1, b"line\nline\n")
    assert caught.value.exit_code == 1
