"""Submits a job again: its files are on the server, and what is not changed stays as it was.

The environment that the first one had of its submitter's shell stays, too: whoever runs something
again wants to know what the change does, and not what else changed in between.
"""

from __future__ import annotations

import os

from paddlecloud.client.retries import patiently
from paddlecloud.model.errors import Conflict, SnapshotMissing
from paddlecloud.model.submit import LOCAL, PARAMETERS, check_env, parse_parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paddlecloud.client.sdk import Client

_NAMES = frozenset(parameter.name for parameter in PARAMETERS) - LOCAL
#: What follows from another parameter unless it is named: of the first job it is the answer, and
#: not what was asked.
_FOLLOWS = {
    "job_type": ("gpu", "distribute_job_type"),
    "gpu": ("job_type",),
    "instance_count": ("distribute_job_type",),
}
_KEPT = ("snapshot", "directory", "inherited_env", "git")


def rerun(
    client: Client, job_id: str, changes: Mapping[str, Any], **hearing: Callable[..., None]
) -> dict[str, Any]:
    """The server's answer to the new job: `job` and `notes`.

    `changes` are parameters of submit_job; `env` is added to what the first job had. With `files`
    the new job gets that directory instead; then `hearing` is for `submission.submit`.
    """
    asked = client.transport.get(f"/jobs/{job_id}/spec")["spec"]
    wanted = parameters(asked, changes)
    if changes.get("files"):
        return _with_files(client, wanted, changes, hearing)
    spec = parse_parameters({**wanted, **_requirements(changes), "files": "."})
    spec |= {name: asked[name] for name in _KEPT if asked.get(name)}
    keys = _keys(client, spec)
    request = {"spec": spec, "idempotency_key": os.urandom(16).hex(), **keys}
    try:
        return _asked(client, request, with_keys=bool(keys))
    except SnapshotMissing:
        raise Conflict("rerun_files_gone", job_id=job_id) from None


def parameters(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the new job, from the first one's spec and what is changed."""
    given = {name: value for name, value in changes.items() if value is not None}
    dropped = {name for change in given for name in _FOLLOWS.get(change, ())}
    kept = {
        name: value
        for name, value in asked.items()
        if name in _NAMES and name not in dropped and value not in (None, "", {})
    }
    if "env" in given:
        given["env"] = {**kept.get("env", {}), **check_env(given["env"])}
    return {**kept, **{name: value for name, value in given.items() if name not in LOCAL}}


def _keys(client: Client, spec: Mapping[str, object]) -> dict[str, str]:
    """Of private storage: those of whoever runs it again."""
    if spec["public_bos"]:
        return {}
    from paddlecloud.client.submission import private_keys  # noqa: PLC0415 - seldom needed

    return private_keys(client, spec)


def _asked(client: Client, request: dict[str, Any], *, with_keys: bool) -> dict[str, Any]:
    def ask() -> dict[str, Any]:
        answer: dict[str, Any] = client.transport.post("/jobs", request, again=True)
        return answer

    if not with_keys:
        return patiently(ask)
    from paddlecloud.client import private  # noqa: PLC0415 - seldom needed

    return private.with_keys(client, lambda: patiently(ask))


def _requirements(changes: Mapping[str, Any]) -> dict[str, str]:
    if not changes.get("requirements"):
        return {}
    from paddlecloud.client.submission import requirements_of  # noqa: PLC0415 - seldom needed

    return {"requirements": requirements_of(changes["requirements"])}


def _with_files(
    client: Client,
    wanted: dict[str, Any],
    changes: Mapping[str, Any],
    hearing: Mapping[str, Callable[..., None]],
) -> dict[str, Any]:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

    from paddlecloud.client.submission import submit  # noqa: PLC0415 - only with a directory

    wanted["files"] = changes["files"]
    if changes.get("requirements") or not wanted.get("requirements"):
        return submit(client, wanted, **hearing)
    # A file in a directory of its own: Windows opens no file again that is open.
    with TemporaryDirectory() as directory:
        path = f"{directory}/requirements.txt"
        with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - as elsewhere
            file.write(wanted["requirements"])
        return submit(client, {**wanted, "requirements": path}, **hearing)
