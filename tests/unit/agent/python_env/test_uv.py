"""uv in place of pip: which settings it gets, when pip has to be used, and what it makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.python_env import _uv
from tests.unit.agent.runs import a_run
from tests.uv import UV, a_wheel, needs_uv


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose configuration is all that pip finds."""
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    files = [tmp_path / ".pip" / "pip.conf", tmp_path / ".config" / "pip" / "pip.conf"]
    monkeypatch.setattr(_uv, "_config_files", lambda env, own: files if own else [])
    return tmp_path


def configured(home: Path, text: str) -> None:
    (home / ".config" / "pip" / "pip.conf").write_text(text)


def given(env: dict[str, str], requirements: str = "a==1\n", *, own: bool = True) -> dict[str, str]:
    """The variables that uv gets beside the fixed ones; its flags as `flags`."""
    found = _uv.options(env, requirements, own=own)
    assert found is not None
    variables, flags = found
    rest = {k: v for k, v in variables.items() if k not in _uv._FIXED and not k.startswith("PIP_")}
    return rest | ({"flags": " ".join(flags)} if flags else {})


@pytest.mark.parametrize(
    ("env", "want"),
    [
        (
            {"PIP_INDEX_URL": "https://u:p@i/simple"},
            {"UV_DEFAULT_INDEX": "https://u:p@i/simple", "UV_INDEX_URL": "https://u:p@i/simple"},
        ),
        (
            {"PIP_EXTRA_INDEX_URL": "https://a \n https://b"},
            {"UV_EXTRA_INDEX_URL": "https://a https://b"},
        ),
        ({"PIP_TRUSTED_HOST": "a b"}, {"UV_INSECURE_HOST": "a b"}),
        ({"PIP_CERT": "/ca.pem"}, {"SSL_CERT_FILE": "/ca.pem"}),
        ({"PIP_FIND_LINKS": "/w https://l"}, {"UV_FIND_LINKS": "/w,https://l"}),
        ({"PIP_NO_INDEX": "1"}, {"flags": "--no-index"}),
        ({"PIP_NO_INDEX": "false"}, {}),
        ({"PIP_PRE": "yes"}, {"flags": "--prerelease=allow"}),
        ({"PIP_ONLY_BINARY": "a, b"}, {"flags": "--only-binary=a --only-binary=b"}),
        ({"PIP_DEFAULT_TIMEOUT": "180", "PIP_NO_INPUT": "1"}, {"UV_HTTP_TIMEOUT": "180"}),
        ({"PIP_INDEX_URL": ""}, {}),
        ({"HTTPS_PROXY": "http://p", "UV_INDEX": "https://mine"}, {"HTTPS_PROXY": "http://p"}),
        ({"UV_CACHE_DIR": "/c"}, {"UV_CACHE_DIR": "/c"}),
    ],
)
def test_the_settings_of_pip_are_carried_over(
    home: Path, env: dict[str, str], want: dict[str, str]
) -> None:
    assert given(env) == want


def test_configuration_files_are_read_and_variables_win(home: Path) -> None:
    configured(
        home,
        "[global]\nindex-url = https://one\ntrusted_host =\n    a\n    b\n"
        "[install]\nindex_url = https://two\n[list]\nformat = json\n",
    )
    urls = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
    assert given({}) == {"UV_INSECURE_HOST": "a b"} | dict.fromkeys(urls, "https://two")
    found = given({"PIP_INDEX_URL": "https://three"})
    assert {found[name] for name in urls} == {"https://three"}
    assert given({}, own=False) == {}


def test_an_index_in_the_requirements_replaces_the_others(home: Path) -> None:
    env = {"PIP_INDEX_URL": "https://i", "PIP_EXTRA_INDEX_URL": "https://e"}
    assert given(env, "--index-url=https://other\na\n") == {}
    assert given({}, "a==1 --hash=sha256:00\n") == {"flags": "--require-hashes"}


@pytest.mark.parametrize(
    ("env", "requirements", "own"),
    [
        ({"PIP_NO_BUILD_ISOLATION": "0"}, "a", True),
        ({"PIP_USE_FEATURE": "x"}, "a", True),
        ({"PIP_TARGET": "/x"}, "a", True),
        ({}, "--trusted-host h\na", True),
        ({}, "--pre\na", True),
        ({"PIP_CONFIG_FILE": "/srv/pip.conf"}, "a", False),
        ({"XDG_CONFIG_DIRS": "/srv"}, "a", False),
    ],
)
def test_what_uv_cannot_do_alike_is_left_to_pip(
    home: Path, env: dict[str, str], requirements: str, own: bool
) -> None:
    assert _uv.options(env, requirements, own=own) is None


def test_a_configuration_that_cannot_be_read_is_left_to_pip(home: Path) -> None:
    configured(home, "index-url = no section\n")
    assert _uv.options({}, "a", own=True) is None


def test_the_files_are_those_of_pip(tmp_path: Path) -> None:
    home = {"HOME": "/people/me"}
    own = [str(path) for path in _uv._config_files(home, own=True)]
    assert own[-2:] == ["/people/me/.pip/pip.conf", "/people/me/.config/pip/pip.conf"]
    assert not any("/people/me" in str(path) for path in _uv._config_files(home, own=False))
    assert [*_uv._config_files({"PIP_CONFIG_FILE": os.devnull}, own=True)] == []
    last = [*_uv._config_files({"PIP_CONFIG_FILE": "/c"}, own=True)][-1]
    assert str(last) == "/c"


def test_uv_is_looked_for_where_its_user_finds_it(tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "uv").write_text("")
        (tmp_path / name / "uv").chmod(0o755)
    theirs, ours = f"{tmp_path}/theirs", {"PATH": f"{tmp_path}/ours"}
    assert _uv.find(a_run(env={"PATH": theirs}), ours) == f"{theirs}/uv"
    assert _uv.find(a_run(env={"PATH": "/nowhere"}), ours) == f"{tmp_path}/ours/uv"
    assert _uv.find(a_run(env={"PATH": "/nowhere"}, uid=9), ours) is None


@needs_uv
@pytest.mark.slow
def test_the_real_one_makes_an_environment_like_that_of_pip(home: Path) -> None:
    """By the links in a configuration file of pip; `pip` in it is its own."""
    assert UV is not None
    a_wheel(home)
    (home / "requirements.txt").write_text("tinything==1.0\n")
    configured(home, f"[global]\nno-index = true\nfind-links = {home}\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "UV_CACHE_DIR": str(home / "cache")}
    found = _uv.options(env, "tinything==1.0\n", own=True)
    assert found is not None
    variables, flags = found
    target = home / "environment"
    command = _uv.command(UV, sys.executable, target, "requirements.txt", flags)
    subprocess.run(["sh", "-c", command], cwd=home, env=variables, check=True)
    check = "import tinything, pip, sys; print(tinything.VERSION, pip.__file__, sys.prefix)"
    ran = subprocess.run(
        [target / "bin" / "python", "-c", check], capture_output=True, text=True, check=True
    )
    version, pip, prefix = ran.stdout.split()
    assert (version, prefix) == ("1.0", str(target))
    assert pip.startswith(str(target))
    assert (target / "bin" / "pip").exists()
    installer = next(target.glob("lib/*/site-packages/tinything-1.0.dist-info/INSTALLER"))
    assert installer.read_text().strip() == "uv"
