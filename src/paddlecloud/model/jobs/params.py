"""The parameters of submit_job: what they are called, and every rule that needs no server.

`PARAMETERS` is the one table; the command line makes its flags from it, the SDK its keywords and
the reference its rows. Each checker takes the text of a flag as well as the typed value of the wire
and gives the typed value back, so that the server runs the same checks on what it receives and a
hand-made request cannot pass what the command line refuses. Rules that depend on the pools of a
server are in `admission.py`. No dataclasses or typing here: submit_job starts with this file.
"""

from __future__ import annotations

from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.bos_url import fault_of, plain_bos_url
from paddlecloud.model.jobs._param_checks import check_instances, start_with_most
from paddlecloud.model.policy.priority import CLASSES, HIGHEST, LOWEST
from paddlecloud.model.units import (
    format_duration,
    format_size,
    is_digits,
    parse_duration,
    parse_size,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_NAME = 128
MAX_COMMAND_BYTES = 64 * 1024
MAX_DESCRIPTION = 4096
GIT_WORDS = ("commit", "branch", "dirty", "cut", "left_out")
MAX_GIT_WORD = 250
MAX_REQUIREMENTS_BYTES = 64 * 1024
MAX_WALL_TIME = 366 * 24 * 3600
ANY_EXIT = "any"
"""What retry_exit_codes says for every failure of the program that may pass."""
MEMORY_RANGE = (4 * 2**20, 16 * 2**40)
MAX_ENV_BYTES = 256 * 1024
MAX_VARIABLE_BYTES = 96 * 1024
"""Linux refuses to start a program with a single variable of 128 KiB."""

INHERITED_NAMES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONPATH",
    "PADDLECLOUD_HOME",
)
"""What a submitter's own shell passes to a job on their own machine, so that `python` is theirs,
and the platform's home, so that a `paddlecloud` in the job asks the server that runs the job.
Nothing on the list is a secret; the rest of the shell's environment stays where it is."""

RESERVED_NAMES = frozenset(
    {
        "POD_IP",
        "TRAINING_ROLE",
        "DISTRIBUTE_JOB_TYPE",
        "JOB_ID",
        "OUTPUT_PATH",
        "LOCAL_LOG_PATH",
        "LOCAL_MOUNT_PATH",
        "PADDLE_TRAINER_ID",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_USE_CUDA",
        "PADDLE_IS_LOCAL",
        "PADDLE_PORT",
        "PADDLE_PSERVERS_IP_PORT_LIST",
        "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_CURRENT_ENDPOINT",
        "PADDLE_TRAINING_ROLE",
        "PADDLE_GLOO_HTTP_ENDPOINT",
        "PADDLE_GLOO_RENDEZVOUS",
        "PADDLE_WITH_GLOO",
        "PADDLE_TRAINER_NUM",
        "PADDLE_TRAINERS_ENDPOINTS",
        "PADDLE_JOB_NAME",
        "PADDLE_PSERVERS",
        "PADDLE_TRAINERS",
        "PADDLE_PSERVER_IPS",
        "PADDLE_TRAINER_IPS",
        "TRAINERS",
        "PSERVERS",
        "TOPOLOGY",
        "ENTRY",
        "TRAINER_PACKAGE",
        "NAMESPACE",
    }
)
"""What the platform sets itself, and two names that a launcher takes for parameter server mode."""
RESERVED_PREFIXES = ("PADDLECLOUD_", "PADDLE_CLOUD_", "PADDLE_INIT_")


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
        """name, text, flag, choice, integer, codes, priority, number, duration, size, env, bos_url,
        requirements or path."""
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
        return self.kind == "env"


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
    Parameter("env", "env"),
    Parameter("requirements", "requirements", "", high=MAX_REQUIREMENTS_BYTES),
    Parameter("description", "text", "", high=MAX_DESCRIPTION),
    Parameter("max_retries", "integer", 0, low=0, high=100),
    Parameter("retry_exit_codes", "codes", low=1, high=255),
    Parameter("hang_timeout", "duration"),
    Parameter("priority", "priority", 0, choices=tuple(CLASSES), low=LOWEST, high=HIGHEST),
)
PSERVER_NAMES = ("pservers", "pserver_cpu", "pserver_memory")
"""Whoever gives one of these means PSERVER mode."""
ALIASES = {"file": "files"}
LOCAL = frozenset({"files", "watch_mode"})
"""Parameters that never travel: the directory becomes a snapshot, watching happens here."""

_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}


def parse_parameters(raw: Mapping[str, object]) -> dict[str, object]:
    """The wire spec these parameters mean, or Invalid. None stands for "not given".

    `snapshot` and `inherited_env` are left empty for the caller, who alone can read the disk;
    `files` and `watch_mode` are checked and left out (see `directory_of`).
    """
    given = _resolve_names(raw)
    values = {parameter.name: _value(parameter, given) for parameter in PARAMETERS}
    files = values.pop("files")
    del values["watch_mode"]
    start_with_most(values, given)
    _check_together(values, has_files=bool(files))
    values |= {"snapshot": None, "directory": _last_name(str(files or "")), "inherited_env": {}}
    return values


def directory_of(raw: Mapping[str, object]) -> str | None:
    """The directory that `files` names, if any: only the client can look into it."""
    files = _value(_BY_NAME["files"], _resolve_names(raw))
    return str(files) if files else None


def check_wire(wire: Mapping[str, object]) -> dict[str, object]:
    """The same wire spec, every rule checked again and every default filled in, or Invalid."""
    values: dict[str, object] = {**_WIRE_DEFAULTS, "env": {}, "inherited_env": {}}
    for name, value in wire.items():
        if name not in _WIRE:
            raise _unknown(str(name), _WIRE)
        if value is not None:
            check, parameter = _WIRE[name]
            values[name] = check(parameter, value)
    if values["start_cmd"] is None:
        raise Invalid("param_missing", name="start_cmd")
    start_with_most(values, wire)
    _check_together(values, has_files=values["snapshot"] is not None)
    return values


def check_env(value: object, allowed: Iterable[str] = ()) -> dict[str, str]:
    """Variables as a mapping, a K=V text or a sequence of such texts; reserved names refused,
    except those that are `allowed`."""
    pairs = dict(_pairs(value))
    total = 0
    for name, text in pairs.items():
        _check_variable(name, text, reserved=name not in allowed and _is_reserved(name))
        total += len(name) + len(text.encode()) + 2
    if total > MAX_ENV_BYTES:
        raise Invalid("env_size", size=format_size(total), limit=format_size(MAX_ENV_BYTES))
    return pairs


def _resolve_names(raw: Mapping[str, object]) -> dict[str, object]:
    given: dict[str, object] = {}
    for name, value in raw.items():
        real = ALIASES.get(name, name)
        if real not in _BY_NAME:
            raise _unknown(name, _BY_NAME)
        if value is None:
            continue
        if real in given and given[real] != value:
            raise Invalid("param_twice", name=real, first=_shown(given[real]), second=_shown(value))
        given[real] = value
    return given


def _unknown(name: str, known: Iterable[str]) -> Invalid:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistyped name pays for it

    near = get_close_matches(name.replace("-", "_"), sorted(known), n=1)
    if near:
        return Invalid("param_unknown_near", name=_shown(name), near=near[0])
    return Invalid("param_unknown", name=_shown(name))


def _value(parameter: Parameter, given: Mapping[str, object]) -> object:
    if parameter.name in given:
        return _CHECKERS[parameter.kind](parameter, given[parameter.name])
    if parameter.required:
        raise Invalid("param_missing", name=parameter.name)
    return {} if parameter.kind == "env" else parameter.default


def _check_text(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value)
    if "\0" in text:
        raise Invalid("param_nul", name=parameter.name)
    size = len(_encoded(parameter.name, text))
    if size > parameter.high:
        raise Invalid("param_long", name=parameter.name, size=size, limit=int(parameter.high))
    if parameter.required and not text.strip():
        raise Invalid("param_missing", name=parameter.name)
    return text


def _check_requirements(parameter: Parameter, value: object) -> str:
    """The text of the file; the client has read it. Nothing else of the submitter's machine is
    where the packages are installed."""
    try:
        text = _check_text(parameter, value).replace("\r\n", "\n")
    except Invalid as error:
        if error.code != "param_long":
            raise
        raise Invalid("requirements_long", **error.params) from None
    for number, line in enumerate(text.split("\n"), 1):
        if _names_a_file(line.strip()):
            raise Invalid("requirements_local", line=number, text=_shown(line.strip()))
    return text


def _names_a_file(line: str) -> bool:
    option, _, rest = line.replace("=", " ", 1).partition(" ")
    if option in ("-r", "--requirement", "-c", "--constraint"):
        return True
    named = rest.strip() if option in ("-e", "--editable") else line
    return named == "." or named.startswith(("./", "../", ".\\", "..\\"))


def _check_name(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value)
    _encoded(parameter.name, text)
    if not text.strip() or len(text) > MAX_NAME:
        raise Invalid(
            "param_name_length", name=parameter.name, size=len(text.strip()), limit=MAX_NAME
        )
    if not text.isprintable() or "/" in text or "\\" in text:
        raise Invalid("param_name_letters", name=parameter.name, value=_shown(value))
    return text


def _check_flag(parameter: Parameter, value: object) -> int:
    if str(value) not in ("0", "1", "True", "False") or value in ("True", "False"):
        raise Invalid("param_choice", name=parameter.name, value=_shown(value), choices="0, 1")
    return int(str(value) in ("1", "True"))


def _check_choice(parameter: Parameter, value: object) -> str:
    for choice in parameter.choices:
        if str(value).lower() == choice.lower():
            return choice
    raise Invalid(
        "param_choice",
        name=parameter.name,
        value=_shown(value),
        choices=", ".join(parameter.choices),
    )


def _check_integer(parameter: Parameter, value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not is_digits(text.removeprefix("-").removeprefix("+")):
        raise Invalid("param_integer", name=parameter.name, value=_shown(value))
    if len(text) > 18 or not parameter.low <= int(text) <= parameter.high:
        raise _out_of_range(parameter, value)
    return int(text)


def _check_priority(parameter: Parameter, value: object) -> int:
    """A class by its name; a number is one of before classes had names."""
    name = str(value).strip().lower()
    if name in CLASSES:
        return CLASSES[name]
    digits = is_digits(name.removeprefix("-").removeprefix("+")) and len(name) <= 18
    if isinstance(value, bool) or not digits or not LOWEST <= int(name) <= HIGHEST:
        raise Invalid(
            "priority_format",
            value=_shown(value),
            choices=", ".join(parameter.choices),
            low=LOWEST,
            high=HIGHEST,
        )
    return int(name)


def _check_number(parameter: Parameter, value: object) -> float:
    try:
        number = float("nan" if isinstance(value, bool) or "_" in str(value) else str(value))
    except ValueError:
        number = float("nan")
    if number != number:
        raise Invalid("param_number", name=parameter.name, value=_shown(value))
    if not parameter.low <= number <= parameter.high:
        raise _out_of_range(parameter, value)
    if abs(round(number, 2) - number) > 1e-9:
        raise Invalid("param_step", name=parameter.name, value=_shown(value))
    return round(number, 2)


def _out_of_range(parameter: Parameter, value: object) -> Invalid:
    return Invalid(
        "param_range",
        name=parameter.name,
        value=_shown(value),
        low=f"{parameter.low:g}",
        high=f"{parameter.high:g}",
    )


def _check_duration(parameter: Parameter, value: object) -> int:
    """Text is hh:mm:ss only (a bare number could be meant in any unit); the wire has seconds."""
    seconds = value if type(value) is int else parse_duration(_text(parameter.name, value))
    if seconds is None:
        raise Invalid("wall_time_format", name=parameter.name, value=_shown(value))
    if not 1 <= seconds <= MAX_WALL_TIME:
        low, high = "00:00:01", format_duration(MAX_WALL_TIME)
        shown = {"value": _shown(value), "low": low, "high": high}
        raise Invalid("wall_time_range", name=parameter.name, **shown)
    return seconds


def _check_codes(parameter: Parameter, value: object) -> str:
    """`any`, or numbers with commas in between; the SDK may give a list of them."""
    rows = value if isinstance(value, (list, tuple)) else _text(parameter.name, value).split(",")
    words = [str(row).strip() for row in rows if str(row).strip()]
    if words == [ANY_EXIT]:
        return ANY_EXIT
    for word in words:
        if not is_digits(word) or len(word) > 3:
            raise Invalid("retry_codes_format", value=_shown(word))
        if not parameter.low <= int(word) <= parameter.high:
            raise _out_of_range(parameter, word)
    return ",".join(str(number) for number in sorted({int(word) for word in words}))


def _check_size(parameter: Parameter, value: object) -> int:
    name = parameter.name
    size = value if type(value) is int else parse_size(_text(name, value))
    if size is None:
        raise Invalid("memory_format", name=name, value=_shown(value))
    low, high = (format_size(limit) for limit in MEMORY_RANGE)
    if not MEMORY_RANGE[0] <= size <= MEMORY_RANGE[1]:
        raise Invalid("memory_range", name=name, value=_shown(value), low=low, high=high)
    return size


def _check_env(parameter: Parameter, value: object) -> dict[str, str]:
    del parameter
    return check_env(value)


def _check_git(parameter: Parameter, value: object) -> dict[str, str]:
    """A few short words about a repository."""
    found = value if isinstance(value, dict) else {"": ""}
    for name, word in found.items():
        if name not in GIT_WORDS or not isinstance(word, str) or len(word) > MAX_GIT_WORD:
            raise Invalid("git_invalid", value=_shown(name), known=", ".join(GIT_WORDS))
    return found


def _check_inherited(parameter: Parameter, value: object) -> dict[str, str]:
    del parameter
    return check_env(value, INHERITED_NAMES)


def _pairs(value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        return [(_text("env", name), _text("env", text)) for name, text in value.items()]
    rows = value if isinstance(value, (list, tuple)) else [value]
    pairs = []
    for row in rows:
        name, equals, text = _text("env", row).partition("=")
        if not equals:
            raise Invalid("env_format", value=_shown(row))
        pairs.append((name.strip(), text))
    return pairs


def _is_reserved(name: str) -> bool:
    return name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES)


def _check_variable(name: str, text: str, *, reserved: bool) -> None:
    letters = name.replace("_", "a")
    if not name or not letters.isascii() or not letters.isalnum() or is_digits(name[0]):
        raise Invalid("env_name", name=_shown(name))
    if reserved:
        raise Invalid("env_reserved", name=name)
    if "\0" in text:
        raise Invalid("param_nul", name=f"env {name}")
    if len(_encoded(f"env {name}", text)) > MAX_VARIABLE_BYTES:
        limit = format_size(MAX_VARIABLE_BYTES)
        raise Invalid("env_value_long", name=name, size=len(text), limit=limit)


def _check_bos_url(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value).strip()
    if not text:
        return ""
    _encoded(parameter.name, text)
    fault = fault_of(text)
    if fault is not None:
        from paddlecloud.model.diagnosis.reasons import wrong_bos_url  # noqa: PLC0415 - only for a wrong one

        raise wrong_bos_url(_shown(value), *fault)
    return plain_bos_url(text) or ""


def _check_path(parameter: Parameter, value: object) -> str:
    text = value.__fspath__() if hasattr(value, "__fspath__") else value
    return _text(parameter.name, text)


def _check_snapshot(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value)
    digest = text.removeprefix("sha256:")
    if not text.startswith("sha256:") or len(digest) != 64 or digest.strip("0123456789abcdef"):
        raise Invalid("snapshot_id_format", value=_shown(value))
    return text


def _check_directory(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value)
    if len(text) > 255 or "/" in text or "\0" in text:
        raise Invalid("param_name_letters", name="directory", value=_shown(value))
    _encoded("directory", text)
    return text


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
    check_instances(values)
    _check_pservers(values)


def _check_pservers(values: Mapping[str, object]) -> None:
    mode = values["distribute_job_type"]
    alone = values["instance_count"] == 1 and values["max_instance"] is None
    about = [name for name in PSERVER_NAMES if values[name] is not None]
    if mode == "NCCL2" and about:
        raise Invalid("pservers_in_nccl2", name=about[0], value=_shown(values[about[0]]))
    if alone and values["pservers"] is None and (mode or about):
        if mode:
            raise Invalid("distribute_alone", mode=mode)
        raise Invalid("pservers_alone", name=about[0])


def _last_name(path: str) -> str:
    """The directory's name as written; "." and ".." have none until the caller looks."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return "" if name in (".", "..") else name[:255]


def _text(name: str, value: object) -> str:
    """The value as text; a list or mapping where one word belongs is a mistake to be told."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise Invalid("param_type", name=name, type=type(value).__name__)


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid("param_utf8", name=name) from None


def _shown(value: object) -> str:
    """A value as an error may repeat it: short, on one line, always encodable."""
    text = str(value).encode("utf-8", "backslashreplace").decode()
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:200])
    return (text or '""') if len(text) <= 80 else text[:77] + "..."


_CHECKERS: dict[str, Callable[[Parameter, object], object]] = {
    "name": _check_name,
    "text": _check_text,
    "flag": _check_flag,
    "choice": _check_choice,
    "integer": _check_integer,
    "codes": _check_codes,
    "priority": _check_priority,
    "number": _check_number,
    "duration": _check_duration,
    "size": _check_size,
    "env": _check_env,
    "bos_url": _check_bos_url,
    "path": _check_path,
    "requirements": _check_requirements,
}

_WIRE = {p.name: (_CHECKERS[p.kind], p) for p in PARAMETERS if p.name not in LOCAL}
_WIRE_DEFAULTS: dict[str, object] = {name: p.default for name, (_, p) in _WIRE.items()}
_WIRE_DEFAULTS |= {"snapshot": None, "directory": ""}
_WIRE |= {
    "snapshot": (_check_snapshot, Parameter("snapshot", "text")),
    "directory": (_check_directory, Parameter("directory", "name")),
    "git": (_check_git, Parameter("git", "text")),
    "inherited_env": (_check_inherited, Parameter("inherited_env", "env")),
}
