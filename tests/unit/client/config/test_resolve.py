"""Where each value of the configuration comes from, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.client.config.ini_file import MAX_FILE
from paddlecloud.client.config.resolve import Config, language, resolve
from paddlecloud.model.errors import ConfigError
from tests.unit.client.config.published_file import PUBLISHED


def test_the_published_file_means_what_it_shows(tmp_path: Path) -> None:
    config, path = resolved(tmp_path, PUBLISHED)
    assert {name: (text, origin) for name, text, origin in config.rows()} == {
        "main.debug": ("0", f"{path}:4"),
        "main.user_id": ("u-1", f"{path}:5"),
        "main.ak": ("AK1", f"{path}:6"),
        "main.sk": ("********", f"{path}:7"),
        "openapi.host": ("paddlecloud.baidu.com", f"{path}:10"),
        "openapi.port": ("80", f"{path}:11"),
        "openapi.scheme": ("http", "default"),
        "openapi.ca_file": ("", "default"),
        "bcc.host": ("bcc.gz.baidubce.com", f"{path}:14"),
        "bcc.ak": ("", "default"),
        "bcc.sk": ("", "default"),
        "bos.host": ("bj.bcebos.com", "default"),
        "bos.ak": ("AKB", f"{path}:18"),
        "bos.sk": ("", "default"),
        "bos.session_token": ("", "default"),
        "lang": ("en", "default"),
        "home": (str(tmp_path / ".paddlecloud"), "default"),
    }
    assert (config.sk, config.embedded, config.path) == ("SK//1#2;3", False, path)
    assert config.warnings == []


def test_nothing_set_up_means_embedded(tmp_path: Path) -> None:
    config = resolve({}, {"HOME": str(tmp_path)})
    assert config.embedded
    assert (config.path, config.warnings, config.debug) == (None, [], False)
    assert config.save_path == f"{tmp_path}/.paddlecloud/client.conf"
    assert {origin for _, _, origin in config.rows()} == {"default"}


def test_the_first_file_that_exists_is_used_whole(tmp_path: Path) -> None:
    home, ours = tmp_path / "person", tmp_path / "ours"
    places = [
        tmp_path / "flag.conf",
        tmp_path / "variable.conf",
        ours / "client.conf",
        home / "bin/paddlecloud/conf/client.conf",
        home / "bin/paddlecloud/client.conf",
    ]
    for number, place in enumerate(places):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"[main]\nuser_id = {number}\n[bcc]\nak = only{number}\n")
    environ = {"HOME": str(home), "PADDLECLOUD_HOME": str(ours)}
    asked = {**environ, "PADDLECLOUD_CONFIG": str(places[1])}
    assert resolve({"config": str(places[0])}, asked).user_id == "0"
    assert resolve({}, asked).user_id == "1"
    for number in (2, 3, 4):
        config = resolve({}, environ)
        assert (config.user_id, config.path) == (str(number), str(places[number]))
        assert config.values["bcc.ak"].text == f"only{number}"
        places[number].unlink()
    assert resolve({}, environ).path is None


def test_flags_come_before_variables_before_the_file(tmp_path: Path) -> None:
    text = "[main]\nak = f\nsk = f\n[openapi]\nhost = f\nport = 1\n"
    environ = {"PADDLECLOUD_AK": "e", "PADDLECLOUD_SK": "e", "PADDLECLOUD_HOST": "e"}
    config, path = resolved(tmp_path, text, {**environ, "PADDLECLOUD_PORT": "2"}, {"host": "x"})
    assert (config.ak, config.sk, config.host, config.port) == ("e", "e", "x", 2)
    assert config.values["openapi.host"].origin == "--host"
    assert config.values["openapi.port"].origin == "PADDLECLOUD_PORT"
    empty, _ = resolved(tmp_path, text, dict.fromkeys(environ, " "), {"host": ""})
    assert (empty.ak, empty.values["main.ak"].origin) == ("f", f"{path}:2")


@pytest.mark.parametrize(
    ("text", "environ", "want"),
    [
        ("", {}, ""),
        ("ca_file = tls/ca.pem", {}, "{folder}/tls/ca.pem"),
        ("ca_file = /etc/ca.pem", {}, "/etc/ca.pem"),
        ("", {"HOME": "/home/me", "PADDLECLOUD_CA_FILE": "~/ca.pem"}, "/home/me/ca.pem"),
        ("ca_file = a.pem", {"PADDLECLOUD_CA_FILE": "b.pem"}, "b.pem"),
    ],
)
def test_the_issuers_to_trust(
    tmp_path: Path, text: str, environ: dict[str, str], want: str
) -> None:
    config, path = resolved(tmp_path, f"[openapi]\nhost = https://h\n{text}\n", environ)
    assert config.ca_file == want.format(folder=Path(path).parent)


@pytest.mark.parametrize("origin", ["--config", "PADDLECLOUD_CONFIG"])
def test_a_file_that_was_asked_for_must_exist(tmp_path: Path, origin: str) -> None:
    missing = str(tmp_path / "no.conf")
    flags = {"config": missing} if origin == "--config" else {}
    with pytest.raises(ConfigError) as caught:
        resolve(flags, {"HOME": str(tmp_path), "PADDLECLOUD_CONFIG": missing})
    assert caught.value.code == "config_missing"
    assert caught.value.params == {"path": missing, "origin": origin}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"ak = 1\n", "config_no_section"),
        (b"[main]\nak = \xff\n", "config_encoding"),
        ("[main]\n".encode("utf-16"), "config_encoding"),
        (b"#" * (MAX_FILE + 1), "config_too_large"),
    ],
)
def test_files_that_cannot_be_meant(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "client.conf"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        resolve({"config": str(path)}, {})
    assert caught.value.code == code
    assert str(path) in str(caught.value)


def test_a_directory_or_an_odd_name_is_not_readable(tmp_path: Path) -> None:
    for path in (str(tmp_path), "a\0b"):
        with pytest.raises(ConfigError) as caught:
            resolve({"config": path}, {})
        assert caught.value.code == "config_unreadable"


def test_a_pipe_does_not_hold_the_command(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert resolve({"config": str(path)}, {}).embedded


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("port", "0", "config_port"),
        ("port", "65536", "config_port"),
        ("port", "80a", "config_port"),
        ("port", "-1", "config_port"),
        ("port", "٣", "config_port"),
        ("debug", "yes", "config_debug"),
        ("scheme", "ftp", "config_scheme"),
        ("host", "ftp://h", "config_host"),
        ("host", "h/path", "config_host"),
        ("host", "user@h", "config_host"),
        ("host", "a b", "config_host"),
        ("host", "h:", "config_host"),
        ("host", "https://", "config_host"),
        ("host", "[::1", "config_host"),
        ("host", "[::1]x", "config_host"),
        ("host", "[name]", "config_host"),
        ("host", "h:80:90", "config_host"),
        ("host", "https://http://h", "config_host"),
        ("host", "h:99999", "config_port"),
        ("ak", "a/b", "config_key"),
        ("ak", "a b", "config_key"),
        ("sk", "键", "config_key"),
        ("user_id", "a\x07", "config_key"),
    ],
)
def test_wrong_values_are_refused_with_their_origin(name: str, value: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({name: value}, {})
    assert caught.value.code == code
    assert f"--{name}" in str(caught.value)
    assert name != "sk" or value not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "environ", "text", "want"),
    [
        ({"host": "h"}, {}, "", "http h 80"),
        ({"host": "h", "port": "443"}, {}, "", "https h 443"),
        ({"host": "h:8080"}, {}, "", "http h 8080"),
        ({"host": "HTTPS://h/"}, {}, "", "https h 443"),
        ({"host": "http://h:443"}, {}, "", "http h 443"),
        ({"host": "h", "scheme": "https"}, {}, "", "https h 443"),
        ({"host": "https://h:8443"}, {}, "port = 80", "https h 8443"),
        ({"host": "::1"}, {}, "", "http ::1 80"),
        ({"host": "https://[::1]:9"}, {}, "", "https ::1 9"),
        ({}, {"PADDLECLOUD_HOST": "https://e"}, "host = f\nport = 80", "https e 443"),
        ({}, {"PADDLECLOUD_HOST": "e"}, "host = f\nport = 81", "http e 81"),
        ({"port": "9"}, {}, "host = https://f:8443", "https f 9"),
        ({}, {}, "host = https://f\nport = 8443", "https f 8443"),
    ],
)
def test_host_port_and_scheme_settle(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], text: str, want: str
) -> None:
    config, _ = resolved(tmp_path, f"[openapi]\n{text}\n", environ, flags)
    assert f"{config.scheme} {config.host} {config.port}" == want
    assert config.warnings == []


def test_a_second_port_in_the_same_place_is_pointed_out(tmp_path: Path) -> None:
    config, path = resolved(tmp_path, "[openapi]\nhost = h:8080\nport = 80\n")
    assert config.port == 8080
    assert [(w.code, w.params["origin"]) for w in config.warnings] == [
        ("config_two_values", f"{path}:3")
    ]


def test_unknown_names_are_warnings_with_a_suggestion(tmp_path: Path) -> None:
    config, path = resolved(tmp_path, "[main]\nuserID2 = 1\n[bso]\nak = 1\nx = 2\n[q]\n")
    assert [str(warning) for warning in config.warnings] == [
        f"{path}:2: unknown key userid2 in [main] is ignored; did you mean user_id?",
        f"{path}:3: unknown section [bso] is ignored; did you mean bos?",
        f"{path}:6: unknown section [q] is ignored; did you mean main, openapi, bcc, bos?",
    ]


@pytest.mark.parametrize(
    ("mode", "text", "want"),
    [
        (0o644, "[main]\nak = a\nsk = s\n", ["config_exposed"]),
        (0o640, "[bos]\nsk = s\n", ["config_exposed"]),
        (0o600, "[main]\nak = a\nsk = s\n", []),
        (0o644, "[main]\nsk =\n", []),
    ],
)
def test_a_secret_that_others_can_read_is_pointed_out(
    tmp_path: Path, mode: int, text: str, want: list[str]
) -> None:
    path = tmp_path / "client.conf"
    path.write_text(text)
    path.chmod(mode)
    config = resolve({"config": str(path)}, {})
    assert [warning.code for warning in config.warnings] == want


def test_a_pair_from_two_places_is_pointed_out(tmp_path: Path) -> None:
    config, path = resolved(tmp_path, "[main]\nak = a\nsk = s\n", {"PADDLECLOUD_AK": "b"})
    assert [warning.params for warning in config.warnings] == [
        {"ak": "PADDLECLOUD_AK", "sk": f"{path}:3"}
    ]


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({}, "en default"),
        ({"LANG": "zh_CN.UTF-8"}, "zh LANG"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US"}, "en LC_MESSAGES"),
        ({"LC_ALL": "zh_TW", "LC_MESSAGES": "en_US"}, "zh LC_ALL"),
        ({"LC_ALL": "", "LANG": "C"}, "en LANG"),
        ({"PADDLECLOUD_LANG": "zh", "LC_ALL": "C"}, "zh PADDLECLOUD_LANG"),
        ({"PADDLECLOUD_LANG": "fr", "LC_ALL": "zh_CN"}, "en default"),
    ],
)
def test_language(environ: dict[str, str], want: str) -> None:
    value = resolve({}, {"HOME": "/nowhere", **environ}).values["lang"]
    assert f"{value.text} {value.origin}" == want
    assert language({}, environ) == value.text
    assert language({"lang": "zh"}, environ) == "zh"


def test_a_language_we_do_not_speak_is_pointed_out() -> None:
    config = resolve({}, {"HOME": "/nowhere", "PADDLECLOUD_LANG": "fr"})
    assert [warning.code for warning in config.warnings] == ["config_lang"]


def test_home_is_absolute_wherever_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    want = {"rel": "/rel", "~/x": "/me/x", "/abs": "/abs"}
    for given_home, home in want.items():
        environ = {"HOME": "/me", "PADDLECLOUD_HOME": given_home}
        assert resolve({}, environ).home == home
        assert resolve({"home": given_home}, {"HOME": "/me"}).values["home"].origin == "--home"


def test_a_tilde_that_the_shell_left_alone(tmp_path: Path) -> None:
    (tmp_path / "my.conf").write_text("[main]\nuser_id = me\n")
    assert resolve({"config": "~/my.conf"}, {"HOME": str(tmp_path)}).user_id == "me"


def test_the_way_of_every_command_imports_nothing_slow() -> None:
    names = ("client.config.resolve", "net.http1", "model.protocol.bce_auth")
    modules = ", ".join(f"paddlecloud.{name}" for name in names)
    code = f"import {modules}, sys; print(*sys.modules)"
    # Without -S the installation's own start-up files would be measured too.
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[4] / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    slow = {"re", "typing", "dataclasses", "pathlib", "json", "http", "urllib"}
    assert slow.isdisjoint(loaded)
    assert "paddlecloud.net.http1" in loaded


def resolved(
    tmp_path: Path,
    text: str,
    environ: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> tuple[Config, str]:
    path = tmp_path / "bin/paddlecloud/conf/client.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return resolve(flags or {}, {"HOME": str(tmp_path), **(environ or {})}), str(path)
