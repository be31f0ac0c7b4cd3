"""The fields of a run order, and the values of those that an older server leaves out.

They are those of `server.schemas.agent.RunOrder`; a test compares both. A field that only one side
knew would be ignored silently, and a user's job could run as the agent's own user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypedDict

    class RunOrder(TypedDict):
        command: str
        began: bool
        env: dict[str, str]
        snapshot: str | None
        blobs_dir: str | None
        direct: bool
        role: str
        rank: int
        worker: str
        max_seconds: float | None
        cpu_request: float
        cpu_limit: float | None
        memory_limit: int | None
        pids_limit: int | None
        log_limit: int | None
        uid: int | None
        hide: list[str]
        user_namespaces: bool
        requirements: str
        install_seconds: float
        private_root: bool
        resumes: str | None
        ports: list[int]
        stacks: bool
        pserver_mode: bool
        secret: str
        patience: float | None
        store_patience: float | None

    class Run(RunOrder):
        """The same, and what the agent knows of all runs."""

        grace: float
        """Seconds between SIGTERM and SIGKILL when the wall time is over."""


UNSAID: Mapping[str, Any] = {
    "uid": None,
    "hide": [],
    "user_namespaces": True,
    "requirements": "",
    "install_seconds": 1800.0,
    "private_root": False,
    "resumes": None,
    "ports": [],
    "stacks": False,
    "pserver_mode": False,
    "secret": "",
    "patience": None,
    "store_patience": None,
}
"""What servers of before do not say, and what it means then."""


def run_of(order: Mapping[str, Any], grace: float) -> Run | None:
    """The run that an order of the server is about; None where it says nothing of it."""
    said = order.get("run")
    return cast("Run", {**UNSAID, **said, "grace": grace}) if said else None
