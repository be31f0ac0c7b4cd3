"""The jobs that a TAB offers: ids and names that begin with what was typed.

A completion is to be fast and silent: one request without a retry, to a server that runs. It never
starts an embedded server.
"""

from __future__ import annotations

from paddlecloud.client import local_server, response_schemas
from paddlecloud.client.sdk import Client
from paddlecloud.client.transport import Transport
from paddlecloud.model.jobs.references import LAST, PREFIX
from paddlecloud.net.retry import ONCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from paddlecloud.client.config.resolve import Config

#: The newest jobs that are offered.
MOST_JOBS = 200
SECONDS = 2.0


def candidates(config: Config, typed: str, states: Collection[str] = ()) -> list[tuple[str, str]]:
    """Each word that could follow, and the job that it means, if that has one of these states.

    A name is offered if no shell would have to quote it. Digits are completed to digits: the id
    may be given without its `job-`.
    """
    transport = _transport(config)
    if transport is None:
        return []
    query, schema = {"limit": MOST_JOBS}, response_schemas.JOBS
    try:
        rows = transport.get("/jobs", query, schema=schema, timeout=SECONDS, policy=ONCE)["jobs"]
    finally:
        transport.close()
    meant: dict[str, dict[str, Any]] = {}
    for row in rows:
        meant[row["job_id"]] = row
        if typed:
            meant[row["job_id"].removeprefix(PREFIX)] = row
        name = row.get("job_name") or ""
        if name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            meant.setdefault(name, row)
        meant.setdefault(LAST, row)
    return [
        (word, _about(word, row))
        for word, row in meant.items()
        if word.startswith(typed) and (not states or row["job_status"] in states)
    ]


def _about(word: str, row: dict[str, Any]) -> str:
    other = row.get("job_name") if word in row["job_id"] else row["job_id"]
    return f"{other} ({row['job_status']})"


def _transport(config: Config) -> Transport | None:
    """One to the server that runs; None if none does."""
    if not config.embedded:
        return Client(config).transport
    known = local_server.find(config.home)
    return None if known is None else Transport(lambda *_: known, config.lang)
