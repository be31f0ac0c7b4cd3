"""Checks the value of one parameter of submit_job: type, range, form.

Each checker takes the text of a flag or the typed value of the wire and returns the typed value, or
raises Invalid, so that the server runs the same checks as the command line. Rules that relate
several parameters are in `params`. No dataclasses or typing here: submit_job loads this module.
"""

from __future__ import annotations

from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.bos_url import fault_of, plain_bos_url
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
    from collections.abc import Callable, Iterable

    from paddlecloud.model.jobs.params import Parameter

MAX_NAME = 128
GIT_WORDS = ("commit", "branch", "dirty", "cut", "left_out")
MAX_GIT_WORD = 250
MAX_WALL_TIME = 366 * 24 * 3600
ANY_EXIT = "any"
"""The value of retry_exit_codes for every failure that may be temporary."""
MAX_LABEL = 63
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
"""Variables that a job on the submitter's own machine inherits from the shell, so that `python` is
the same, and PADDLECLOUD_HOME, so that a `paddlecloud` in the job uses the server that runs it.
None of them is a secret."""
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
"""Variables that the platform sets, and two that switch Paddle's launcher to PSERVER mode."""
MAX_SECRET_BYTES = 64 * 1024
MAX_SECRET_NAME = 64
MAX_SECRETS_OF_JOB = 32
RESERVED_PREFIXES = ("PADDLECLOUD_", "PADDLE_CLOUD_", "PADDLE_INIT_")


def check_env(value: object, allowed: Iterable[str] = ()) -> dict[str, str]:
    """Variables from a mapping, a K=V text or a sequence of such texts; Invalid for reserved names
    that are not `allowed`."""
    pairs = dict(_pairs(value))
    total = 0
    for name, text in pairs.items():
        ours = name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES)
        _check_variable(name, text, reserved=ours and name not in allowed)
        total += len(name) + len(text.encode()) + 2
    if total > MAX_ENV_BYTES:
        raise Invalid("env_size", size=format_size(total), limit=format_size(MAX_ENV_BYTES))
    return pairs


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
    """The text of the file, which the client has read. It must not refer to other files, which do
    not exist where the packages are installed."""
    try:
        text = _check_text(parameter, value).replace("\r\n", "\n")
    except Invalid as error:
        if error.code != "param_long":
            raise
        raise Invalid("requirements_long", **error.params) from None
    for number, line in enumerate(text.split("\n"), 1):
        if _names_a_file(line.strip()):
            raise Invalid("requirements_local", line=number, text=shown(line.strip()))
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
        raise Invalid("param_name_letters", name=parameter.name, value=shown(value))
    return text


def _check_flag(parameter: Parameter, value: object) -> int:
    if str(value) not in ("0", "1", "True", "False") or value in ("True", "False"):
        raise Invalid("param_choice", name=parameter.name, value=shown(value), choices="0, 1")
    return int(str(value) in ("1", "True"))


def _check_choice(parameter: Parameter, value: object) -> str:
    for choice in parameter.choices:
        if str(value).lower() == choice.lower():
            return choice
    raise Invalid(
        "param_choice",
        name=parameter.name,
        value=shown(value),
        choices=", ".join(parameter.choices),
    )


def _check_integer(parameter: Parameter, value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not is_digits(text.removeprefix("-").removeprefix("+")):
        raise Invalid("param_integer", name=parameter.name, value=shown(value))
    if len(text) > 18 or not parameter.low <= int(text) <= parameter.high:
        raise _out_of_range(parameter, value)
    return int(text)


def _check_priority(parameter: Parameter, value: object) -> int:
    """A class by its name, or a number, as older clients send it."""
    name = str(value).strip().lower()
    if name in CLASSES:
        return CLASSES[name]
    digits = is_digits(name.removeprefix("-").removeprefix("+")) and len(name) <= 18
    if isinstance(value, bool) or not digits or not LOWEST <= int(name) <= HIGHEST:
        raise Invalid(
            "priority_format",
            value=shown(value),
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
        raise Invalid("param_number", name=parameter.name, value=shown(value))
    if not parameter.low <= number <= parameter.high:
        raise _out_of_range(parameter, value)
    if abs(round(number, 2) - number) > 1e-9:
        raise Invalid("param_step", name=parameter.name, value=shown(value))
    return round(number, 2)


def _out_of_range(parameter: Parameter, value: object) -> Invalid:
    return Invalid(
        "param_range",
        name=parameter.name,
        value=shown(value),
        low=f"{parameter.low:g}",
        high=f"{parameter.high:g}",
    )


def _check_duration(parameter: Parameter, value: object) -> int:
    """Text is hh:mm:ss only (a bare number could be meant in any unit); the wire has seconds."""
    seconds = value if type(value) is int else parse_duration(_text(parameter.name, value))
    if seconds is None:
        raise Invalid("wall_time_format", name=parameter.name, value=shown(value))
    if not 1 <= seconds <= MAX_WALL_TIME:
        high = format_duration(MAX_WALL_TIME)
        raise Invalid(
            "wall_time_range", name=parameter.name, value=shown(value), low="00:00:01", high=high
        )
    return seconds


def _check_codes(parameter: Parameter, value: object) -> str:
    """`any`, or numbers with commas in between; the SDK may give a list of them."""
    rows = value if isinstance(value, (list, tuple)) else _text(parameter.name, value).split(",")
    words = [str(row).strip() for row in rows if str(row).strip()]
    if words == [ANY_EXIT]:
        return ANY_EXIT
    for word in words:
        if not is_digits(word) or len(word) > 3:
            raise Invalid("retry_codes_format", value=shown(word))
        if not parameter.low <= int(word) <= parameter.high:
            raise _out_of_range(parameter, word)
    return ",".join(str(number) for number in sorted({int(word) for word in words}))


def _check_labels(parameter: Parameter, value: object) -> str:
    """KEY=VALUE with commas in between, sorted; the SDK may give a dict."""
    if isinstance(value, dict):
        rows = [f"{key}={text}" for key, text in value.items()]
    else:
        rows = [row.strip() for row in _text(parameter.name, value).split(",") if row.strip()]
    for row in rows:
        name, equals, text = row.partition("=")
        if not equals or not _is_label(name) or not _is_label(text):
            raise Invalid("require_format", value=shown(row))
    if len({row.partition("=")[0] for row in rows}) < len(rows):
        raise Invalid("require_twice", value=shown(",".join(rows)))
    return ",".join(sorted(rows))


def _is_label(text: str) -> bool:
    return 0 < len(text) <= MAX_LABEL and all(
        letter.isascii() and (letter.isalnum() or letter in "_.-") for letter in text
    )


def _check_size(parameter: Parameter, value: object) -> int:
    name = parameter.name
    size = value if type(value) is int else parse_size(_text(name, value))
    if size is None:
        raise Invalid("memory_format", name=name, value=shown(value))
    low, high = (format_size(limit) for limit in MEMORY_RANGE)
    if not MEMORY_RANGE[0] <= size <= MEMORY_RANGE[1]:
        raise Invalid("memory_range", name=name, value=shown(value), low=low, high=high)
    return size


def _check_env(parameter: Parameter, value: object) -> dict[str, str]:
    del parameter
    return check_env(value)


def check_secret_name(name: str) -> str:
    """The name of a secret, which is also the name of its file."""
    letters = name.replace("_", "a").replace("-", "a").replace(".", "a")
    plain = letters.isascii() and letters.isalnum() and not name.startswith((".", "-"))
    if not plain or len(name) > MAX_SECRET_NAME:
        raise Invalid("secret_name", name=shown(name), limit=MAX_SECRET_NAME)
    return name


def check_secrets(value: object) -> dict[str, str]:
    """The variable (or an empty text) by the name of each secret, from a mapping, a NAME or
    NAME=VARIABLE text, or a sequence of such texts."""
    if isinstance(value, dict):
        pairs = [(_text("secret", name), env) for name, env in value.items()]
    else:
        rows = value if isinstance(value, (list, tuple)) else [value]
        texts = [_text("secret", row).partition("=") for row in rows]
        for name, equals, env in texts:
            if equals and not env:
                raise Invalid("env_name", name=shown(f"{name}="))
        pairs = [(name, env) for name, _, env in texts]
    found: dict[str, str] = {}
    for name, env in pairs:
        variable = _text("secret", env or "").strip()
        check_secret_name(name.strip())
        if name.strip() in found:
            raise Invalid("secret_twice", name=shown(name))
        if variable:
            ours = variable in RESERVED_NAMES or variable.startswith(RESERVED_PREFIXES)
            _check_variable(variable, "", reserved=ours)
            if variable in found.values():
                raise Invalid("secret_variable_twice", variable=variable)
        found[name.strip()] = variable
    if len(found) > MAX_SECRETS_OF_JOB:
        raise Invalid("secrets_of_job", count=len(found), limit=MAX_SECRETS_OF_JOB)
    return found


def _check_secrets(parameter: Parameter, value: object) -> dict[str, str]:
    del parameter
    return check_secrets(value)


def check_git(parameter: Parameter, value: object) -> dict[str, str]:
    """A few short values about a git repository."""
    found = value if isinstance(value, dict) else {"": ""}
    for name, word in found.items():
        if name not in GIT_WORDS or not isinstance(word, str) or len(word) > MAX_GIT_WORD:
            raise Invalid("git_invalid", value=shown(name), known=", ".join(GIT_WORDS))
    return found


def check_inherited(parameter: Parameter, value: object) -> dict[str, str]:
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
            raise Invalid("env_format", value=shown(row))
        pairs.append((name.strip(), text))
    return pairs


def _check_variable(name: str, text: str, *, reserved: bool) -> None:
    letters = name.replace("_", "a")
    if not name or not letters.isascii() or not letters.isalnum() or is_digits(name[0]):
        raise Invalid("env_name", name=shown(name))
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
        from paddlecloud.model.diagnosis.reasons import wrong_bos_url  # noqa: PLC0415 - only for errors

        raise wrong_bos_url(shown(value), *fault)
    return plain_bos_url(text) or ""


def _check_path(parameter: Parameter, value: object) -> str:
    text = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(text, str):
        raise Invalid("param_path", name=parameter.name, value=shown(value))
    return text


def check_snapshot(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value)
    digest = text.removeprefix("sha256:")
    if not text.startswith("sha256:") or len(digest) != 64 or digest.strip("0123456789abcdef"):
        raise Invalid("snapshot_id_format", value=shown(value))
    return text


def check_directory(parameter: Parameter, value: object) -> str:
    text = _text(parameter.name, value)
    if len(text) > 255 or "/" in text or "\0" in text:
        raise Invalid("param_name_letters", name="directory", value=shown(value))
    _encoded("directory", text)
    return text


def _text(name: str, value: object) -> str:
    """The value as text; Invalid for a list or mapping."""
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


def shown(value: object) -> str:
    """A value as error messages show it: short, on one line, encodable."""
    text = str(value).encode("utf-8", "backslashreplace").decode()
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:200])
    return (text or '""') if len(text) <= 80 else text[:77] + "..."


CHECKERS: dict[str, Callable[[Parameter, object], object]] = {
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
    "secrets": _check_secrets,
    "labels": _check_labels,
    "bos_url": _check_bos_url,
    "path": _check_path,
    "requirements": _check_requirements,
}
