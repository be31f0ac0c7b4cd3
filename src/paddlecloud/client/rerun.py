"""Submits a job again: its files are on the server, and what is not changed stays as it was.

The environment that the first one had of its submitter's shell stays, too, unless other files are
given: a rerun shows what the given changes do, and not what else has changed since.
"""

from __future__ import annotations

from paddlecloud.client import response_schemas
from paddlecloud.client.sdk import job_path
from paddlecloud.client.submit import Submit, requirements_of, submit
from paddlecloud.model.errors import Conflict, Invalid, SnapshotMissing
from paddlecloud.model.files.bos_url import plain_bos_url
from paddlecloud.model.jobs.param_checks import check_env, check_secrets
from paddlecloud.model.jobs.params import ALIASES, LOCAL, PARAMETERS, parse_parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from paddlecloud.client.sdk import Client
    from paddlecloud.client.submit import Confirm, Note

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
    client: Client,
    job: str,
    changes: Mapping[str, Any],
    confirm: Confirm | None = None,
    **callbacks: Any,
) -> dict[str, Any]:
    """The server's answer to the new job: `job` and `notes`.

    `changes` are parameters of submit_job; `env` is added to what the first job had. `unset` names
    variables that it does not get, and parameters that are as if they had not been given. With
    `files` the new job gets that directory instead; otherwise its record has what the files of
    the first one differed in from their commit. `confirm` and `callbacks` are those of
    `submit.submit`.
    """
    changes = {ALIASES.get(name, name): value for name, value in changes.items()}
    if changes.get("files") == "":
        raise Invalid("rerun_files_empty", job_id=job)
    answer = client.transport.get(f"{job_path(job)}/spec", schema=response_schemas.SPEC)
    asked, job_id = answer["spec"], answer.get("job_id") or job
    wanted = parameters(asked, changes)
    if changes.get("files"):
        return _with_files(client, wanted, changes, {**callbacks, "confirm": confirm})
    if changes.get("requirements"):
        wanted["requirements"] = requirements_of(changes["requirements"])
    spec = parse_parameters({**wanted, "files": "."})
    if asked.get("snapshot") and _storage(spec) != _storage(asked):
        raise Conflict("rerun_files_elsewhere", job_id=job_id)
    spec |= {name: asked[name] for name in _KEPT if asked.get(name)}
    diff = _diff_of(client, job_id, asked, **callbacks)
    try:
        # A user bucket is read with the keys of this user.
        return Submit(client, spec, **callbacks).of_known_files(diff)
    except SnapshotMissing:
        raise Conflict("rerun_files_gone", job_id=job_id) from None


def parameters(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the new job, from the first one's spec and what is changed."""
    given = {name: value for name, value in changes.items() if value is not None}
    taken_back, unset = _sorted_out(given.pop("unset", ()), asked)
    # Only `env` may be both given and unset: the first job's variables go, and the given ones come.
    variables = check_env(given["env"]) if unset and "env" in given else {}
    both = (taken_back & given.keys()) - {"env"} | unset & variables.keys()
    if both:
        raise Invalid("rerun_unset_given", names=", ".join(sorted(both)))
    dropped = {name for change in (*given, *taken_back) for name in _FOLLOWS.get(change, ())}
    dropped |= taken_back
    if str(given.get("public_bos", "")) in ("1", "True"):
        dropped.add("bos_url")
    kept = {
        name: value
        for name, value in asked.items()
        if name in _NAMES and name not in dropped and value not in (None, "", {})
    }
    if unset:
        env = kept.get("env", {}).items()
        kept["env"] = {name: value for name, value in env if name not in unset}
    if "env" in given:
        given["env"] = {**kept.get("env", {}), **check_env(given["env"])}
    if "secret" in given:
        given["secret"] = {**kept.get("secret", {}), **check_secrets(given["secret"])}
    return {**kept, **{name: value for name, value in given.items() if name not in LOCAL}}


def _sorted_out(unset: Any, asked: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Flags that are taken back, and variables. A name of both is the variable's: it is the one
    that the first job was given."""
    is_several = hasattr(unset, "__iter__") and not isinstance(unset, str | bytes)
    names = {str(name) for name in (unset if is_several else [unset])}
    if not all(name.strip() for name in names):
        raise Invalid("rerun_unset_empty")
    env = asked.get("env") or {}
    flags = {name: ALIASES.get(name, name) for name in names if name not in env}
    for name, flag in flags.items():
        if flag in LOCAL:
            raise Invalid("rerun_unset_local", name=name)
        if flag not in _NAMES:
            known = ", ".join(sorted(env)) or "-"
            raise Invalid("rerun_unset", name=name, known=known)
    return {*flags.values()}, names - flags.keys()


def _storage(spec: Mapping[str, Any]) -> str | None:
    """Where the files of such a job lie; empty: with the server."""
    return "" if spec.get("public_bos", 1) else plain_bos_url(spec.get("bos_url") or "")


def _diff_of(
    client: Client, job_id: str, asked: Mapping[str, Any], note: Note | None = None, **_: object
) -> str:
    """What the files of a job differed in from their commit; empty if the store does not return it,
    which is noted."""
    if (asked.get("git") or {}).get("dirty") != "1":
        return ""
    git = client.transport.get(job_path(job_id), schema=response_schemas.JOB).get("git") or {}
    if "diff_missing" in git and note is not None:
        note("diff_unkept", reason=git["diff_missing"])
    return str(git.get("diff") or "")


def _with_files(
    client: Client,
    wanted: dict[str, Any],
    changes: Mapping[str, Any],
    callbacks: Mapping[str, Any],
) -> dict[str, Any]:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

    wanted["files"] = changes["files"]
    if changes.get("requirements") or not wanted.get("requirements"):
        return submit(client, wanted, **callbacks)
    # A file in a directory of its own: Windows opens no file again that is open.
    with TemporaryDirectory() as directory:
        path = f"{directory}/requirements.txt"
        with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - as elsewhere
            file.write(wanted["requirements"])
        return submit(client, {**wanted, "requirements": path}, **callbacks)
