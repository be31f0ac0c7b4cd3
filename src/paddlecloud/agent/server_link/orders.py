"""The fields of a run order, with defaults for those that an older server leaves out.

They are those of `server.schemas.agent.RunOrder`, and a test compares both: a field that only one
side knows would be ignored silently, and a user's job could run as the agent's own user.
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
        secrets: dict[str, str]
        patience: float | None
        store_patience: float | None

    class Run(RunOrder):
        """The same with the settings of the agent."""

        grace: float
        """Seconds between SIGTERM and SIGKILL when the wall time is over."""


DEFAULTS: Mapping[str, Any] = {
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
    "secrets": {},
    "patience": None,
    "store_patience": None,
}
"""Fields that older servers do not send."""


def run_of(order: Mapping[str, Any], grace: float) -> Run | None:
    """The run of an order; None where the order has none."""
    run = order.get("run")
    return cast("Run", {**DEFAULTS, **run, "grace": grace}) if run else None
