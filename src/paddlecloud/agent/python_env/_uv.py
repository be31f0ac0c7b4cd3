"""Installs `--requirements` with uv where the machine has it, with the settings of pip.

uv installs the same packages in a tenth of the time. The result must not depend on the installer,
so uv gets what pip would read from its variables and configuration files, and none of its own
settings. If a setting or a line of the requirements has no equivalent, pip is used; if uv fails,
pip tries, and its errors are those that the owner of the job reads.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.jobs.environment import FALLBACK_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from paddlecloud.agent.server_link.orders import Run

#: Settings of pip that choose neither packages nor where they come from.
_HARMLESS = frozenset(
    (
        *("break-system-packages", "cache-dir", "compile", "config-file", "debug"),
        *("disable-pip-version-check", "exists-action", "log", "no-color", "no-compile"),
        *("no-input", "no-python-version-warning", "no-warn-conflicts", "no-warn-script-location"),
        *("progress-bar", "quiet", "require-virtualenv", "resume-retries", "retries"),
        *("root-user-action", "verbose"),
    )
)
#: Variables of uv (of earlier versions too) for settings of pip.
_VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "constraint": ("UV_CONSTRAINT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "extra-index-url": ("UV_EXTRA_INDEX_URL",),
    "find-links": ("UV_FIND_LINKS",),
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "proxy": ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "trusted-host": ("UV_INSECURE_HOST",),
}
_SEPARATORS = {"find-links": ","}
_SWITCHES = {
    "no-cache-dir": ("--no-cache",),
    "no-deps": ("--no-deps",),
    "no-index": ("--no-index",),
    "pre": ("--prerelease=allow",),
    "require-hashes": ("--require-hashes",),
}
_LISTS = ("no-binary", "only-binary")
_FIXED = {
    "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip: the best version of all indexes
    "UV_NATIVE_TLS": "true",
    "UV_NO_CONFIG": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_SYSTEM_CERTS": "true",  # the present name of UV_NATIVE_TLS
}
#: Options of a requirements file that uv reads as pip does.
_LINES = frozenset(
    (
        *("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index"),
        *("--no-binary", "--only-binary", "-e", "--editable"),
    )
)
_INDEX_LINES = ("-i", "--index-url")
_HASH = "--hash"
_OFF = frozenset(("0", "false", "no", "off", "n", "f"))
#: Installs the wheels of pip (before Python 3.12 also setuptools) that come with Python: as in an
#: environment that `venv` makes, `pip` in the job must be that of the environment.
_SEED = """
import glob, os, sys, sysconfig
names = ["pip", "setuptools"] if sys.version_info < (3, 12) else ["pip"]
try:
    import ensurepip
    bundled = os.path.dirname(ensurepip.__file__) + "/_bundled"
    top = sysconfig.get_config_var("WHEEL_PKG_DIR") or bundled
    found = [max(glob.glob(top + "/" + name + "-*.whl")) for name in names]
except (ImportError, ValueError):
    found = []
more = ["--offline", "--no-index", "--no-deps", *found] if found else names
os.execv(sys.argv[1], [sys.argv[1], "pip", "install", "--quiet", "--python", sys.executable, *more])
"""


def find(run: Run, environ: Mapping[str, str]) -> str | None:
    """The uv of the user's PATH, or of the agent's for its own user."""
    path = run["env"].get("PATH", FALLBACK_PATH)
    if run["uid"] is None:
        path = f"{path}:{environ.get('PATH', '')}"
    return shutil.which("uv", path=path)


def options(
    env: Mapping[str, str], requirements: str, *, own: bool
) -> tuple[dict[str, str], list[str]] | None:
    """The variables and flags of uv for an install whose pip would get `env`; None if pip has to be
    used. `own`: it is the agent's own user, whose configuration files may be read."""
    lines = [_option(line) for line in requirements.splitlines() if line.strip().startswith("-")]
    settings = _pip_settings(env, own=own)
    if settings is None or not _LINES.issuperset(lines):
        return None
    if not {*_INDEX_LINES}.isdisjoint(lines):  # for pip they replace all other indexes
        settings = {k: v for k, v in settings.items() if k not in ("index-url", "extra-index-url")}
    if _HASH in requirements:
        settings["require-hashes"] = "1"
    found = {name: text for name, text in env.items() if not _is_of_uv(name)} | _FIXED
    flags: list[str] = []
    for name, value in settings.items():
        if name in _VARIABLES:
            text = _SEPARATORS.get(name, " ").join(value.split())
            found |= dict.fromkeys(_VARIABLES[name], text)
        elif name in _SWITCHES:
            flags += _SWITCHES[name] if value.lower() not in _OFF else ()
        elif name in _LISTS:
            flags += [f"--{name}={each.strip()}" for each in value.split(",")]
        elif name not in _HARMLESS:
            return None
    return found, flags


def command(uv: str, python: str, home: Path, file: str, flags: Sequence[str]) -> str:
    """The shell command that creates the environment `home` and installs the requirements."""
    interpreter = f"{home}/bin/python"
    steps = (
        [uv, "venv", "--quiet", "--python", python, str(home)],
        [interpreter, "-I", "-c", _SEED, uv],
        [uv, "pip", "install", "--python", interpreter, *flags, "-r", file],
    )
    return " && ".join(map(shlex.join, steps))


def _is_of_uv(name: str) -> bool:
    return name.startswith("UV_") and name != "UV_CACHE_DIR"


def _option(line: str) -> str:
    return line.strip().replace("=", " ", 1).split()[0]


def _pip_settings(env: Mapping[str, str], *, own: bool) -> dict[str, str] | None:
    """What pip reads from its configuration files and variables, the latter last; None if that
    cannot be known here."""
    from configparser import Error, RawConfigParser  # noqa: PLC0415 - few agents need it

    moved = ("PIP_CONFIG_FILE", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME")
    if not own and any(env.get(name) for name in moved):
        return None  # a file of another user, which the agent must not read
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _config_files(env, own=own):
        parser = RawConfigParser()
        try:
            parser.read_string(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, Error):
            return None
        for section, values in sections.items():
            if parser.has_section(section):
                values |= {_name(name): text for name, text in parser.items(section) if text}
    given = {_name(k[4:]): text for k, text in env.items() if k.startswith("PIP_") and text}
    return {**sections["global"], **sections["install"], **given}


def _config_files(env: Mapping[str, str], *, own: bool) -> Iterator[Path]:
    """The configuration files that pip reads, those that win later."""
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return
    if sys.platform == "darwin":
        yield Path("/Library/Application Support/pip/pip.conf")
    else:
        for folder in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
            yield Path(folder, "pip", "pip.conf")
        yield Path("/etc/pip.conf")
    home = env.get("HOME", "")
    if own and home:
        yield Path(home, ".pip", "pip.conf")
        library = Path(home, "Library", "Application Support", "pip")
        if sys.platform == "darwin" and library.is_dir():
            yield library / "pip.conf"
        else:
            yield Path(env.get("XDG_CONFIG_HOME") or f"{home}/.config", "pip", "pip.conf")
    if env.get("PIP_CONFIG_FILE"):
        yield Path(env["PIP_CONFIG_FILE"])


def _name(name: str) -> str:
    return name.lower().replace("_", "-")
