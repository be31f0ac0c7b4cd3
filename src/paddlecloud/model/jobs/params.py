"""The table of submit_job's parameters, and the rules that relate several of them.

The command line makes its flags from `PARAMETERS`, the SDK its keywords and the reference its rows.
`parse_parameters` checks what a user gave, `check_wire` what a request contains. Values of single
parameters are checked in `param_checks`, rules that depend on the pools of a server in
`policy.admission`. No dataclasses or typing here: submit_job loads this module.
"""

from __future__ import annotations

from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.param_checks import (
    CHECKERS,
    check_directory,
    check_git,
    check_inherited,
    check_snapshot,
    shown,
)
from paddlecloud.model.policy.priority import CLASSES, HIGHEST, LOWEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_COMMAND_BYTES = 64 * 1024
MAX_DESCRIPTION = 4096
MAX_REQUIREMENTS_BYTES = 64 * 1024


class Parameter:
    """One parameter: its name, how it is checked, its default and the code of its help sentence."""

    __slots__ = ("choices", "default", "help", "high", "kind", "low", "name")

    def __init__(
        self,
        name: str,
        kind: str,
        default: str | int | None = None,
        *,
        choices: tuple[str, ...] = (),
        low: float = 0,
        high: float = 0,
    ) -> None:
        self.name = name
        self.kind = kind
        """name, text, flag, choice, integer, codes, priority, number, duration, size, env, secrets,
        labels, bos_url, requirements or path."""
        self.default = default
        """None: nothing is assumed (start_cmd: it has to be given)."""
        self.choices = choices
        self.low = low
        self.high = high
        self.help = "help_" + name

    @property
    def required(self) -> bool:
        return self.name == "start_cmd"

    @property
    def repeatable(self) -> bool:
        return self.kind in ("env", "secrets")


PARAMETERS = (
    Parameter("job_name", "name", "tmp_job"),
    Parameter("start_cmd", "text", high=MAX_COMMAND_BYTES),
    Parameter("cluster", "name", "default"),
    Parameter("public_bcc", "flag", 1),
    Parameter("public_bos", "flag", 1),
    Parameter("job_type", "choice", choices=("gpu", "cpu")),
    Parameter("instance_count", "integer", 1, low=1, high=1024),
    Parameter("min_instance", "integer", low=1, high=1024),
    Parameter("max_instance", "integer", low=1, high=1024),
    Parameter("wall_time", "duration"),
    Parameter("bos_url", "bos_url", ""),
    Parameter("files", "path"),
    Parameter("watch_mode", "flag", 0),
    Parameter("cpu", "number", low=0.01, high=1024),
    Parameter("memory", "size"),
    Parameter("gpu", "integer", low=0, high=64),
    Parameter("distribute_job_type", "choice", choices=("PSERVER", "NCCL2")),
    Parameter("pservers", "integer", low=1, high=1024),
    Parameter("pserver_cpu", "number", low=0.01, high=1024),
    Parameter("pserver_memory", "size"),
    Parameter("require", "labels", ""),
    Parameter("env", "env"),
    Parameter("secret", "secrets"),
    Parameter("requirements", "requirements", "", high=MAX_REQUIREMENTS_BYTES),
    Parameter("description", "text", "", high=MAX_DESCRIPTION),
    Parameter("max_retries", "integer", 0, low=0, high=100),
    Parameter("retry_exit_codes", "codes", low=1, high=255),
    Parameter("hang_timeout", "duration"),
    Parameter("priority", "priority", 0, choices=tuple(CLASSES), low=LOWEST, high=HIGHEST),
)
PSERVER_NAMES = ("pservers", "pserver_cpu", "pserver_memory")
"""Giving one of these selects PSERVER mode."""
ALIASES = {"file": "files"}
LOCAL = frozenset({"files", "watch_mode"})
"""Parameters that are not sent: the directory becomes a snapshot, the client itself watches."""
_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}


def parse_parameters(raw: Mapping[str, object]) -> dict[str, object]:
    """The wire spec of these parameters, or Invalid. None means "not given".

    `snapshot` and `inherited_env` are left empty: the client fills them in;
    `files` and `watch_mode` are checked and left out (see `directory_of`).
    """
    given = _resolve_names(raw)
    values = {parameter.name: _value(parameter, given) for parameter in PARAMETERS}
    files = values.pop("files")
    del values["watch_mode"]
    _start_with_most(values, given)
    _check_together(values, has_files=bool(files))
    # The last name; empty for "." and "..", which the client resolves.
    directory = str(files or "").replace("\\", "/").rstrip("/").rpartition("/")[2][:255]
    if directory in (".", ".."):
        directory = ""
    values |= {"snapshot": None, "directory": directory, "inherited_env": {}}
    return values


def directory_of(raw: Mapping[str, object]) -> str | None:
    """The directory that `files` names, if any."""
    files = _value(_BY_NAME["files"], _resolve_names(raw))
    return str(files) if files else None


def check_wire(wire: Mapping[str, object]) -> dict[str, object]:
    """The same wire spec with every rule checked and every default filled in, or Invalid."""
    values: dict[str, object] = {**_WIRE_DEFAULTS, "env": {}, "inherited_env": {}, "secret": {}}
    for name, value in wire.items():
        if name not in _WIRE:
            raise _unknown(str(name), _WIRE)
        if value is not None:
            check, parameter = _WIRE[name]
            values[name] = check(parameter, value)
    if values["start_cmd"] is None:
        raise Invalid("param_missing", name="start_cmd")
    _start_with_most(values, wire)
    _check_together(values, has_files=values["snapshot"] is not None)
    return values


def _resolve_names(raw: Mapping[str, object]) -> dict[str, object]:
    given: dict[str, object] = {}
    for name, value in raw.items():
        real = ALIASES.get(name, name)
        if real not in _BY_NAME:
            raise _unknown(name, _BY_NAME)
        if value is None:
            continue
        if real in given and given[real] != value:
            raise Invalid("param_twice", name=real, first=shown(given[real]), second=shown(value))
        given[real] = value
    return given


def nearest_parameter(name: str, known: Iterable[str] = ()) -> str:
    """The parameter that a mistyped name may mean; empty if there is none."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistyped name pays for it

    near = get_close_matches(name.replace("-", "_"), sorted(known or _BY_NAME), n=1)
    return near[0] if near else ""


def _unknown(name: str, known: Iterable[str]) -> Invalid:
    near = nearest_parameter(name, known)
    if near:
        return Invalid("param_unknown_near", name=shown(name), near=near)
    return Invalid("param_unknown", name=shown(name))


def _value(parameter: Parameter, given: Mapping[str, object]) -> object:
    if parameter.name in given:
        return CHECKERS[parameter.kind](parameter, given[parameter.name])
    if parameter.required:
        raise Invalid("param_missing", name=parameter.name)
    return {} if parameter.repeatable else parameter.default


def _check_together(values: Mapping[str, object], *, has_files: bool) -> None:
    if values["public_bos"] and values["bos_url"]:
        raise Invalid("bos_url_unused", bos_url=values["bos_url"])
    if values["public_bos"] and not has_files:
        raise Invalid("files_needed")
    if not values["public_bos"] and not values["bos_url"]:
        raise Invalid("bos_url_needed")
    if values["job_type"] == "cpu" and values["gpu"]:
        raise Invalid("gpu_in_cpu_job", gpu=values["gpu"])
    if values["job_type"] == "gpu" and values["gpu"] == 0:
        raise Invalid("gpu_job_without_gpu")
    if values["retry_exit_codes"] and not values["max_retries"]:
        raise Invalid("retry_codes_unused", value=values["retry_exit_codes"])
    _check_variables(values)
    _check_instances(values)
    _check_pservers(values)


def _check_variables(values: Mapping[str, object]) -> None:
    """No variable is both given and a secret."""
    env, secrets = values["env"], values["secret"]
    if isinstance(env, dict) and isinstance(secrets, dict):
        both = [variable for variable in secrets.values() if variable in env]
        if both:
            raise Invalid("secret_variable_given", variable=both[0])


def _start_with_most(values: dict[str, object], given: Mapping[str, object]) -> None:
    """An elastic job without instance_count starts with max_instance trainers."""
    if given.get("instance_count") is None and values["max_instance"] is not None:
        values["instance_count"] = values["max_instance"]


def _check_instances(values: Mapping[str, object]) -> None:
    """Check instance_count, min_instance and max_instance together, and the mode."""
    least, most = values["min_instance"], values["max_instance"]
    if least is None and most is None:
        return
    if least is None or most is None:
        raise Invalid("elastic_alone", name="min_instance" if most is None else "max_instance")
    if values["distribute_job_type"] == "NCCL2":
        raise Invalid("elastic_nccl2")
    wanted = values["instance_count"]
    if not int(str(least)) <= int(str(wanted)) <= int(str(most)):
        raise Invalid("elastic_order", least=least, wanted=wanted, most=most)


def _check_pservers(values: Mapping[str, object]) -> None:
    mode = values["distribute_job_type"]
    alone = values["instance_count"] == 1 and values["max_instance"] is None
    about = [name for name in PSERVER_NAMES if values[name] is not None]
    if mode == "NCCL2" and about:
        raise Invalid("pservers_in_nccl2", name=about[0], value=shown(values[about[0]]))
    if alone and values["pservers"] is None and (mode or about):
        if mode:
            raise Invalid("distribute_alone", mode=mode)
        raise Invalid("pservers_alone", name=about[0])


_WIRE = {p.name: (CHECKERS[p.kind], p) for p in PARAMETERS if p.name not in LOCAL}
_WIRE_DEFAULTS: dict[str, object] = {name: p.default for name, (_, p) in _WIRE.items()}
_WIRE_DEFAULTS |= {"snapshot": None, "directory": ""}
_WIRE |= {
    "snapshot": (check_snapshot, Parameter("snapshot", "text")),
    "directory": (check_directory, Parameter("directory", "name")),
    "git": (check_git, Parameter("git", "text")),
    "inherited_env": (check_inherited, Parameter("inherited_env", "env")),
}
