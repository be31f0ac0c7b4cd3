"""What a home remembers of its server: whose it is beyond a stop, and that it may be deleted."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.client import local_server
from tests.integration.faults.home import Home, until
from tests.ports import free_port

TEAM = 'team = true\n[http]\nhost = "127.0.0.1"\nport = {port}\n'


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    made.clear()


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """The settings of a team, outside of the home."""
    path = tmp_path / "etc" / "server.toml"
    path.parent.mkdir()
    path.write_text(TEAM.format(port=free_port()))
    return path


def running_with(home: Home) -> str:
    return str(local_server.read_info(str(home.path)).get("settings", ""))


@pytest.mark.slow
def test_a_team_s_home_is_never_a_private_one(home: Home, team: Path) -> None:
    assert home.run("server", "start", "--config", str(team)).returncode == 0
    assert home.run("admin", "user", "create", "bob").returncode == 0
    home.run("server", "stop")
    home.kill("agent", "zygote", "spare")
    users = json.loads(home.run("admin", "user", "list", "--json").stdout)
    assert {user["user_id"]: user["plan"] for user in users}["bob"] == "free"
    assert running_with(home) == str(team)
    home.run("server", "stop")
    kept = team.with_name("kept.toml")
    team.rename(kept)
    for words in (["list_jobs"], ["server", "start"]):
        refused = home.run(*words)
        assert refused.returncode == 1
        assert f"was last started with {team}, which no longer exists" in refused.stderr
    assert not local_server.is_alive(str(home.path))
    assert home.run("server", "run").returncode == 1
    assert home.run("server", "start", "--config", str(kept)).returncode == 0
    home.run("server", "stop")
    assert home.run("server", "start").returncode == 0
    assert running_with(home) == str(kept)


@pytest.mark.slow
def test_a_team_s_database_is_not_opened_by_a_private_server(home: Home, team: Path) -> None:
    """However it comes to be private: here the settings lay in the home, and were deleted."""
    home.path.mkdir()
    own = home.path / "server.toml"
    shutil.copy(team, own)
    started = home.run("server", "start")
    assert (started.returncode, started.stderr) == (0, f"starting the server with {own} ...\n")
    home.run("server", "stop")
    own.unlink()
    refused = home.run("list_jobs")
    assert refused.returncode == 1
    assert "belongs to a team server" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not local_server.is_alive(str(home.path))
    assert home.run("server", "start", "--config", str(team)).returncode == 0


@pytest.mark.slow
def test_other_settings_than_those_it_runs_with_are_refused(home: Home, team: Path) -> None:
    assert home.run("server", "start").returncode == 0
    refused = home.run("server", "start", "--config", str(team))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "already running without a settings file" in refused.stderr
    home.run("server", "stop")
    started = home.run("server", "start", "--config", str(team))
    assert f"starting the server with {team} ..." in started.stderr
    again = home.run("server", "start", "--config", str(team))
    assert (again.returncode, again.stdout) == (0, started.stdout)
    assert "already running" in again.stderr
    other = team.with_name("other.toml")
    shutil.copy(team, other)
    refused = home.run("server", "start", "--config", str(other))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"with {team}; to use {other}, stop it first" in refused.stderr


@pytest.mark.slow
def test_a_second_server_says_so_in_the_person_s_language(home: Home) -> None:
    assert home.run("server", "start").returncode == 0
    for lang, sentence in (("en", "already running"), ("zh", "已在运行")):
        home.environ["PADDLECLOUD_LANG"] = lang
        refused = home.run("server", "run")
        assert (refused.returncode, refused.stdout) == (1, "")
        (told,) = refused.stderr.splitlines()
        assert sentence in told
        assert str(home.path) in told


def delete(top: Path) -> None:
    """As `rm -rf`, and again if somebody made a file there meanwhile: its agent is at work."""

    def is_gone() -> bool:
        shutil.rmtree(top, ignore_errors=True)
        return not top.exists()

    until(is_gone, "the directory to go")


@pytest.mark.slow
def test_a_home_that_is_deleted_takes_its_processes_along(home: Home) -> None:
    assert home.run("server", "start").returncode == 0
    until(lambda: home.of_kind("agent"), "the agent")
    delete(home.path)
    until(lambda: not home.processes(), "the end of all of them")
    assert not home.path.exists()


@pytest.mark.slow
def test_the_server_of_a_deleted_home_leaves_the_next_one_alone(home: Home) -> None:
    assert home.run("server", "start").returncode == 0
    (old,) = home.of_kind("server")
    until(lambda: home.of_kind("agent"), "the agent")
    agents = set(home.of_kind("agent"))
    os.kill(old, signal.SIGSTOP)
    delete(home.path)
    assert home.run("server", "start").returncode == 0
    new = local_server.read_info(str(home.path))
    os.kill(old, signal.SIGCONT)
    until(lambda: old not in home.processes(), "the end of the old server")
    until(lambda: not agents & set(home.processes()), "the end of the old agent")
    assert local_server.read_info(str(home.path)) == new
    assert home.run("server", "status").returncode == 0
