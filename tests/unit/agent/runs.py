"""Runs as a server orders them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddlecloud.agent.server_link.orders import run_of

if TYPE_CHECKING:
    from paddlecloud.agent.server_link.orders import Run


def said(**changes: Any) -> dict[str, Any]:
    """What every server says of a run."""
    usual = {
        "command": "true",
        "began": False,
        "env": {},
        "snapshot": None,
        "blobs_dir": None,
        "direct": False,
        "role": "TRAINER",
        "rank": 0,
        "worker": "trainer-0",
        "max_seconds": None,
        "cpu_request": 1.0,
        "cpu_limit": None,
        "memory_limit": None,
        "pids_limit": None,
        "log_limit": None,
    }
    return usual | changes


def a_run(**changes: Any) -> Run:
    """One as the agent keeps it."""
    made = run_of({"run": said(**changes)}, 1.0)
    assert made is not None
    return made
