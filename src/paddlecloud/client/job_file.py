"""Job files: the parameters of submit_job in a TOML file (`submit_job -f job.toml`).

Keys are the parameters' names. `env` may be a table, `secret` a list or a table, and a duration a
TOML time. Relative paths start at the directory of the file. What is given beside the file wins;
`env` and `secret` are combined by name.
"""

from __future__ import annotations

import os

from paddlecloud.client.file_names import shown
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.param_checks import check_env, check_secrets
from paddlecloud.model.jobs.params import ALIASES, PARAMETERS, nearest_parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_BYTES = 1024 * 1024
_COMBINED = {"env": check_env, "secret": check_secrets}
_PATHS = ("files", "requirements")


def merged(path: str | os.PathLike[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the file with those that are given."""
    values = read(path)
    for name, value in given.items():
        real = ALIASES.get(name, name)
        check = _COMBINED.get(real)
        if check is not None and real in values:
            value = {**check(values[real]), **check(value)}
        values[real] = value
    return values


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The parameters in a job file; Invalid names the file and what is wrong with it."""
    import tomllib  # noqa: PLC0415 - few submits need it

    name = os.fspath(path)
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Invalid("job_file_unreadable", path=shown(name), reason=reason) from None
    if len(data) > MAX_BYTES:
        raise Invalid("job_file_long", path=shown(name), limit=MAX_BYTES)
    try:
        # Notepad writes a byte order mark.
        table = tomllib.loads(data.decode("utf-8-sig"))
    except ValueError as error:  # also of bytes that are no UTF-8
        raise Invalid("job_file_syntax", path=shown(name), reason=str(error)) from None
    return _parameters(name, table)


def _parameters(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    known = {parameter.name for parameter in PARAMETERS}
    found: dict[str, Any] = {}
    for key, value in table.items():
        real = ALIASES.get(key, key)
        if real not in known:
            near = nearest_parameter(key)
            code = "job_file_key_near" if near else "job_file_key"
            raise Invalid(code, path=shown(name), name=shown(key), near=near)
        if real in found:
            raise Invalid("job_file_key_twice", path=shown(name), name=real, other=shown(key))
        if real in _PATHS and isinstance(value, str) and value:
            value = os.path.join(os.path.dirname(name), value)  # noqa: PTH118, PTH120 - as above
        found[real] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """The value as a flag would give it: a time as hh:mm:ss, in a table also true and false."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, dict):
        words = {True: "true", False: "false"}
        return {k: words[v] if isinstance(v, bool) else _plain(v) for k, v in value.items()}
    return value
