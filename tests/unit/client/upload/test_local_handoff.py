"""Handing files over where it is not possible; where it is, the real server is asked elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paddlecloud.client.upload.local_handoff import LocalHandoff


@pytest.mark.parametrize("size", [1, 2**24, 2**40])
def test_what_only_some_systems_tell_of_a_file_is_not_asked_for(size: int) -> None:
    """The status of a file has no `st_blocks` on Windows; nothing is handed over there."""
    status: Any = SimpleNamespace(st_size=size)
    transport: Any = None  # nothing is asked of a server that is not on this machine
    with LocalHandoff(transport, near=False) as handoff:
        assert handoff.read(-1, status) == ""
