"""Reading the process table while processes end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.supervisor import processes

pytestmark = pytest.mark.skipif(not processes.LINUX, reason="reads /proc")


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), ProcessLookupError(3, "gone")])
def test_a_process_that_ends_while_it_is_read_has_no_children(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """The kernel says ESRCH for a directory that was opened before the process ended."""

    def ended(self: Path) -> Iterator[Path]:
        raise error

    monkeypatch.setattr(Path, "iterdir", ended)
    assert list(processes._children(os.getpid())) == []
    assert processes.descendants(os.getpid()) == []
