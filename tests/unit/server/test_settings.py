"""server.toml: what is right is read, what is wrong is told with its place and a suggestion."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.model.errors import ConfigError
from paddlecloud.server.settings import Settings, read_settings

RIGHT = """
name = "cloud.example"
time_zone = "Asia/Shanghai"

[http]
port = 8080
max_json = 1000000

[scheduling]
schedule_timeout = 3600
window = 10

[running]
grace = 0.5

[retention]
finished_jobs = 86400

[local_pool]
cpu = 2.5
memory = 1073741824
gpu = 1
"""


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings(home=tmp_path)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("")
    assert read_settings(tmp_path) == Settings(home=tmp_path)


def test_what_is_given_is_used_and_the_rest_stays(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(RIGHT)
    settings = read_settings(tmp_path)
    assert (settings.name, str(settings.zone)) == ("cloud.example", "Asia/Shanghai")
    assert (settings.http.port, settings.http.host) == (8080, "127.0.0.1")
    assert settings.scheduling.schedule_timeout == timedelta(hours=1)
    assert settings.scheduling.window == 10
    assert settings.running.grace == timedelta(milliseconds=500)
    assert settings.running.lost_after == Settings(home=tmp_path).running.lost_after
    assert settings.retention.finished_jobs == timedelta(days=1)
    assert (settings.local_pool.cpu, settings.local_pool.memory, settings.local_pool.gpu) == (
        2.5,
        2**30,
        1,
    )


def test_the_file_of_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('name = "home"')
    other = tmp_path / "other.toml"
    other.write_text('name = "other"')
    assert read_settings(tmp_path, other).name == "other"


WRONG = [
    ("colour = 1", "there is no setting colour; did you mean"),
    ("nmae = 'x'", "there is no setting nmae; did you mean name?"),
    ("home = '/elsewhere'", "there is no setting home"),
    ("[htpp]\nport = 1", "there is no setting htpp; did you mean http?"),
    ("[http]\nprot = 1", "there is no setting http.prot; did you mean http.port?"),
    ("[running]\ngrce = 1", "did you mean running.grace?"),
    ("[http]\nport = 'x'", "http.port = x is not a whole number, 0 or more"),
    ("[http]\nport = -1", "http.port = -1 is not a whole number, 0 or more"),
    ("[http]\nport = true", "http.port = True is not a whole number"),
    ("[http]\nhost = 1", "http.host = 1 is not a text in quotes"),
    ("[http]\nhost = '0.0.0.0'", "http.host = 0.0.0.0 is not an address of this machine alone"),
    ("[http]\nhost = 'cloud.example'", "http.host = cloud.example is not an address"),
    ("[http]\nhost = ''", "is not an address of this machine alone"),
    ("[running]\ngrace = '40s'", "running.grace = 40s is not a number of seconds above 0"),
    ("[running]\ngrace = 0", "running.grace = 0 is not a number of seconds above 0"),
    ("[local_pool]\ncpu = 'all'", "local_pool.cpu = all is not a number"),
    ("[http]\nport = 80.5", "http.port = 80.5 is not a whole number, 0 or more"),
    ("[http]\nport = 65536", "http.port = 65536 is not a port, 0 to 65535"),
    ("[running]\ngrace = inf", "running.grace = inf is not"),
    ("[running]\ngrace = 1e300", "running.grace = 1e+300 is not"),
    ("[local_pool]\ncpu = nan", "local_pool.cpu = nan is not"),
    ("time_zone = 'Mars/Base'", "time_zone = Mars/Base is not a zone name such as Asia/Shanghai"),
    ("time_zone = '../../etc/passwd'", "is not a zone name"),
    ("http = 1", "http = 1 is not a section: write [http] above its keys"),
    ("[name]\nx = 1", "name = {'x': 1} is not a text in quotes"),
    ("name", "cannot be read"),
]


@pytest.mark.parametrize(("text", "want"), WRONG)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path)
    assert want in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.text("zh") != str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_settings(tmp_path, tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path, tmp_path / "binary.toml")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_addresses_of_this_machine_alone_are_fine(tmp_path: Path, host: str) -> None:
    (tmp_path / "server.toml").write_text(f"[http]\nhost = '{host}'")
    assert read_settings(tmp_path).http.host == host
