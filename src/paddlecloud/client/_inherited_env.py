"""The variables that a job on the submitter's own machine inherits from the shell.

`python` in the job is the submitter's. It is never that of the virtual environment in which
PaddleCloud is installed, unless the person activated that environment and it was not made for
PaddleCloud alone.
"""

from __future__ import annotations

import os
import sys

from paddlecloud.model.jobs.param_checks import INHERITED_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Each marks an environment that holds PaddleCloud and nothing of the person's: `make install` and
#: scripts/install.sh write the first, pipx and `uv tool` the others.
MARKS = ("paddlecloud-only", "pipx_metadata.json", "uv-receipt.toml")
_PYTHONS = ("python3", "python")


def inherited_env(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str] | None]:
    """The variables, and if they lead to another `python` than the shell: `own`, the environment
    that was left out, and `python`, the one that the job finds ("" if there is none)."""
    env = {name: environ[name] for name in INHERITED_NAMES if environ.get(name)}
    env = {name: text for name, text in env.items() if text.isprintable()}
    own = os.path.realpath(sys.prefix)
    if sys.prefix == sys.base_prefix or _is_the_persons(own, env.get("VIRTUAL_ENV", "")):
        return env, None
    if _is_same(own, env.get("VIRTUAL_ENV", "")):
        del env["VIRTUAL_ENV"]
    path = env.get("PATH", "")
    kept = [place for place in path.split(os.pathsep) if not _is_same(f"{own}/bin", place)]
    if len(kept) == len(path.split(os.pathsep)):
        return env, None
    env["PATH"] = os.pathsep.join(kept) or os.defpath
    before, found = (_python(each.split(os.pathsep)) for each in (path, env["PATH"]))
    return env, None if found == before else {"own": own, "python": found}


def _is_the_persons(own: str, active: str) -> bool:
    """Whether the environment that PaddleCloud runs in is one of the person's own, in use."""
    return _is_same(own, active) and not any(
        os.path.exists(f"{own}/{name}")  # noqa: PTH110 - pathlib costs 8 ms
        for name in MARKS
    )


def _is_same(own: str, place: str) -> bool:
    return bool(place) and os.path.realpath(place) == own


def _python(places: list[str]) -> str:
    """The interpreter that a shell would find in these directories."""
    for name in _PYTHONS:
        for place in places:
            found = f"{place}/{name}"
            if place and os.access(found, os.X_OK) and not os.path.isdir(found):  # noqa: PTH112 - pathlib costs 8 ms
                return found
    return ""
