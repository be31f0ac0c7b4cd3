"""Prints what a submit would send and start (`submit_job --dry_run`)."""

from __future__ import annotations

from paddlecloud.cli.output import size, visible
from paddlecloud.model.units import format_duration, format_resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddlecloud.cli.output import Output

_SHOWN = 10


def show(out: Output, found: Mapping[str, Any]) -> int:
    """Print it; the exit code: 1 if the job would be refused."""
    if out.json:
        out.value(found)
        return 0 if found["accepted"] else 1
    files, plan, job = found["files"], found["plan"], found["job"]
    for note in files["notes"] if files else ():
        out.line(note)
    if files and files["new_bytes"] is not None:
        new = {"count": files["new_files"], "size": size(files["new_bytes"])}
        out.line(out.text("dry_new", **new))
    out.line(out.text("dry_command", command=visible(job["start_cmd"])))
    if plan is not None:
        _show_plan(out, plan, job)
    _show_environment(out, job)
    for note in found["notes"]:
        out.line(note)
    for error in found["refused"]:
        out.line(out.text("dry_refused", reason=error["message"]))
    if found["accepted"]:
        out.line(out.text("dry_accepted"))
    return 0 if found["accepted"] else 1


def _show_plan(out: Output, plan: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    for group in plan["workers"]:
        asks = format_resources(group["cpu"], group["memory"], group["gpu"])
        code = "dry_pservers" if group["role"] == "PSERVER" else "dry_trainers"
        out.line(out.text(code, count=group["count"], asks=asks))
    out.line(out.text("dry_pools", pools=", ".join(plan["pools"]), job_type=plan["job_type"]))
    if job["wall_time"]:
        out.line(out.text("dry_wall_time", time=format_duration(job["wall_time"])))


def _show_environment(out: Output, job: Mapping[str, Any]) -> None:
    pairs = [f"{name}={visible(text)}" for name, text in sorted(job["env"].items())]
    packages = [line.strip() for line in job["requirements"].split("\n")]
    packages = [visible(line) for line in packages if line and not line.startswith("#")]
    parts = (
        ("dry_env", pairs),
        ("dry_inherited", job["inherited_env"]),
        ("dry_secrets", job["secrets"]),
        ("dry_requirements", packages),
    )
    for code, names in parts:
        if names:
            out.line(out.text(code, names=_first(names)))


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if names[_SHOWN:] else "")
