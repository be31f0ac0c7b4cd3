"""What an environment is known by, what is said of a failed install, and what may be deleted."""

from __future__ import annotations

import fcntl
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.context import Context
from paddlecloud.agent.inputs.cache import InputCache
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.python_env import _install
from paddlecloud.agent.python_env import cache as python_env_cache
from paddlecloud.agent.python_env.cache import Environments, key_of, last_lines, use
from paddlecloud.agent.registry import Stage, Tracked
from paddlecloud.agent.replica import records
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry
from tests.integration.agent.replicas import eventually
from tests.unit.agent.runs import a_run

if TYPE_CHECKING:
    from paddlecloud.agent.replica.records import ExitRecord, Launch

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "python", "env", "same"),
    [
        pytest.param("a==1\n", "3.11", {"PATH": "/bin", "EPOCHS": "9"}, True, id="other variables"),
        pytest.param("a==2\n", "3.11", {}, False, id="another text"),
        pytest.param("a==1\n", "3.12", {}, False, id="another interpreter"),
        pytest.param("a==1\n", "3.11", {"PIP_PRE": "1"}, False, id="pip is told something else"),
    ],
)
def test_what_it_is_known_by(text: str, python: str, env: dict[str, str], same: bool) -> None:
    assert (key_of("a==1\n", "3.11", {}) == key_of(text, python, env)) is same


def test_the_interpreter_is_the_one_that_the_job_would_find(tmp_path: Path) -> None:
    for name in ("first", "second"):
        program = tmp_path / name / "python3"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho {name}\n")
        program.chmod(0o755)
    path = f"{tmp_path}/none:{tmp_path}/first:{tmp_path}/second"
    found = python_env_cache.find_python({"PATH": path})
    assert found == f"{tmp_path}/first/python3"
    assert python_env_cache.find_python({"PATH": "/nowhere"}) == sys.executable
    # One's own script is asked what it stands for; another user's is never started.
    assert python_env_cache.identity(found, uid=None).endswith("first\n")
    assert "first\n" not in python_env_cache.identity(found, uid=12345)
    assert python_env_cache.identity(sys.executable, uid=None).split()[0] == str(
        Path(sys.executable).resolve()
    )


def test_the_job_finds_its_environment_first() -> None:
    env = {"PATH": "/usr/bin", "PYTHONHOME": "/old", "EPOCHS": "9"}
    want = {"PATH": "/e/bin:/usr/bin", "VIRTUAL_ENV": "/e", "EPOCHS": "9"}
    assert python_env_cache.with_environment(env, "/e") == want


def test_another_user_learns_nothing_of_the_agents_environment() -> None:
    env = {"PATH": "/usr/bin", "EPOCHS": "9"}
    their, mine = a_run(env=env, uid=9), a_run(env=env)
    told = {"HTTPS_PROXY": "http://me:secret@proxy", "PYTHONPATH": "/x", "HOME": "/home/me"}
    told |= {"https_proxy": "http://open:3128"}
    apart = _install.installer_environment(their, told, home="/e", root="/s")
    assert "HTTPS_PROXY" not in apart and apart["https_proxy"] == "http://open:3128"
    assert apart["HOME"] == "/s/home" and apart["EPOCHS"] == "9"
    own = _install.installer_environment(mine, told, home="/e", root="/s")
    assert own["HTTPS_PROXY"] == told["HTTPS_PROXY"] and own["HOME"] == "/home/me"
    assert "PYTHONPATH" not in own
    assert own["PATH"] == apart["PATH"] == "/e/bin:/usr/bin"


GIB = 1 << 30
NO_LIMIT = dict.fromkeys(("cpu", "memory", "pids"), False)


def an_end(**changes: Any) -> ExitRecord:
    """How an install ended that failed."""
    usual = {"cause": records.CAUSE_EXIT, "exit_code": 1, "oom": False, "message": ""}
    return cast("ExitRecord", {**usual, "enforced": NO_LIMIT, **changes})


def trouble(ended: ExitRecord | None, tail: bytes = b"", **limits: Any) -> PaddleCloudError:
    run = a_run(install_seconds=5400.0, **limits)
    launch = cast("Launch", {name: run[name] for name in ("memory_limit", "pids_limit", "uid")})
    return python_env_cache._failure(ended, tail, launch, "python3", run)


@pytest.mark.parametrize(
    ("ended", "tail", "kind", "want"),
    [
        (an_end(), b"Collecting a\nERROR: no a\nnotice\n", Refused, "environment_failed"),
        (an_end(), b"NewConnectionError\nERROR: no a\n", Retry, "environment_network"),
        (an_end(cause="wall_time"), b"Building wheel\n", Refused, "environment_slow"),
    ],
)
def test_what_is_told_of_a_failure(ended: ExitRecord, tail: bytes, kind: type, want: str) -> None:
    error = trouble(ended, tail)
    assert (type(error), error.code) == (kind, want)
    assert last_lines(tail, 3) in str(error)


def test_a_failure_by_a_limit_names_the_limit() -> None:
    assert "the limit of 90 minutes" in str(trouble(an_end(cause="wall_time")))
    held = an_end(oom=True, enforced=NO_LIMIT | {"memory": True})
    assert "this job's limit of 2 GiB" in str(trouble(held, memory_limit=2 * GIB))
    # Without a control group of its own it was the machine's memory.
    assert trouble(an_end(oom=True), memory_limit=2 * GIB).code == "environment_host_memory"
    counted = an_end(forks_refused=3, enforced=NO_LIMIT | {"pids": True})
    assert "limit of 300 processes" in str(trouble(counted, pids_limit=300))


@pytest.mark.parametrize(
    ("ended", "limits", "is_limit"),
    [
        pytest.param(an_end(), {"uid": 9, "pids_limit": 60}, True, id="limit of the user"),
        pytest.param(an_end(), {"pids_limit": 60}, False, id="no limit in force"),
        pytest.param(an_end(), {"uid": 9}, False, id="no limit"),
        pytest.param(
            an_end(enforced=NO_LIMIT | {"pids": True}),
            {"uid": 9, "pids_limit": 60},
            False,
            id="the group refused no process",
        ),
    ],
)
def test_where_no_group_counts_the_words_of_programs_tell_of_the_process_limit(
    ended: ExitRecord, limits: dict[str, Any], is_limit: bool
) -> None:
    tail = b"sh: 0: Cannot fork\nBlockingIOError: [Errno 11] Resource temporarily unavailable\n"
    assert (trouble(ended, tail, **limits).code == "environment_processes") is is_limit


@pytest.mark.parametrize("ended", [None, an_end(cause="stopped", exit_code=None)])
def test_one_whose_supervisor_was_lost_or_that_another_agent_stopped_is_tried_again(
    ended: ExitRecord | None,
) -> None:
    error = trouble(ended)
    assert (type(error), error.code) == (Retry, "environment_lost")


@pytest.mark.parametrize(
    ("code", "limit", "theirs", "own", "more"),
    [
        ("environment_memory", "memory_limit", GIB, 2 * GIB, True),
        ("environment_memory", "memory_limit", GIB, None, True),
        ("environment_memory", "memory_limit", GIB, GIB, False),
        ("environment_processes", "pids_limit", 60, 300, True),
        ("environment_slow", "cpu_limit", 0.5, 4.0, True),
        ("environment_slow", "cpu_limit", None, 4.0, False),
        ("environment_failed", "memory_limit", GIB, 2 * GIB, False),
    ],
)
def test_who_has_higher_limit_than_the_limit_that_was_hit(
    code: str, limit: str, theirs: float | None, own: float | None, more: bool
) -> None:
    making = python_env_cache._Install()
    making.error = Refused(code)
    making.launch = cast("Launch", {limit: theirs})
    assert python_env_cache._has_higher_limit(a_run(**{limit: own}), making) is more


def test_the_last_lines_are_the_errors_if_there_are_any() -> None:
    assert last_lines(b"a\nERROR: b\nERROR: c\nd\n", 3) == "ERROR: b | ERROR: c"
    assert last_lines(b"one\r\rtwo\n\nthree\nfour\n", 3) == "two | three | four"
    assert last_lines(b"", 3) == ""


class Cache:
    """A cache with environments in it, as installs leave them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = AgentConfig(
            path=folder / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
        )
        self.context = Context(config, AgentLog(folder / "agent.log"), cast("Spawner", None))
        self.environments = Environments(self.context, lambda _: None, lambda _: None)
        self.own = folder / "cache" / "envs" / "own"

    def gives(self, replica: str, key: str) -> tuple[Tracked, str]:
        """A replica that was told to use the environment with this key, and where that is."""
        run = a_run(requirements=key)
        root = self.context.registry.root(replica)
        root.mkdir(parents=True)
        made = Tracked(id=replica, fence=1, root=root, run=run, acked=0)
        return made, self.environments.ready(self.context.registry.add(made))

    def waits(self, replica: str, key: str) -> Tracked:
        """A replica that waits for the environment with this key."""
        root = self.context.registry.root(replica)
        made = Tracked(id=replica, fence=1, root=root, run=a_run(requirements=key), acked=0)
        with pytest.raises(Retry, match="creating Python environment"):
            self.environments.ready(self.context.registry.add(made))
        return made

    def has(self, key: str, *, size: int, used_at: float) -> Path:
        home = self.own / f"{key}.aa"
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(sys.executable)
        path = self.own / f"{key}.json"
        records.write(path, {"name": home.name, "size": size})
        (self.own / f"{key}.lock").touch()
        os.utime(path, (used_at, used_at))
        return home


def test_one_that_is_used_is_marked_and_half_of_one_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    home = cache.has("k", size=1, used_at=10.0)
    assert use(cache.own / "k") == str(home)
    assert (cache.own / "k.json").stat().st_mtime > 1000
    (cache.own / "half.bb").mkdir()
    assert use(cache.own / "half") is None
    (home / "bin" / "python").unlink()
    assert use(cache.own / "k") is None


def test_the_one_used_longest_ago_goes_but_none_that_a_replica_has(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    old, used, young = (
        cache.has(key, size=100, used_at=DAY * day) for day, key in enumerate("abc", 1)
    )
    order = tmp_path / "replicas" / "r" / records.ORDER
    order.parent.mkdir(parents=True)
    records.write(order, {"show": [str(used)]})
    os.utime(cache.own / "b.json", (0, 0))
    blobs = tmp_path / "cache" / "blobs" / "aa"
    blobs.mkdir(parents=True)
    (blobs / "blob").write_bytes(b"x" * 50)
    inputs = InputCache(tmp_path / "cache", limit=200)
    assert inputs.prune(10.0 * DAY, cache.environments.evictable) == 100
    assert (old.exists(), used.exists(), young.exists()) == (False, True, True)
    assert not (cache.own / "a.json").exists()
    assert (blobs / "blob").exists()
    # What was just made counts: it is looked at again, and the next one goes.
    inputs.grew(100)
    cache.has("d", size=100, used_at=9 * DAY)
    assert inputs.prune(10.0 * DAY, cache.environments.evictable) == 100
    assert not young.exists()


def test_rubbish_goes_unless_somebody_is_at_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    kept = cache.has("k", size=1, used_at=DAY)
    for name in ("k.bb", "k.bb.tmp", "m.cc"):
        (cache.own / name).mkdir()
    (cache.own / "k.dd.log").touch()
    with (cache.own / "m.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        list(cache.environments.evictable())
        left = {path.name for path in cache.own.iterdir()}
        assert left == {kept.name, "k.json", "k.lock", "m.cc", "m.lock"}
    list(cache.environments.evictable())
    assert not (cache.own / "m.cc").exists()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of the requirements is the key."""
    monkeypatch.setattr(python_env_cache, "key_of", lambda text, *_: text)


def test_one_that_a_replica_was_told_of_stays_while_its_files_are_laid_out(
    tmp_path: Path, plain: None
) -> None:
    del plain
    cache = Cache(tmp_path)
    home = cache.has("k", size=100, used_at=DAY)
    tracked, given = cache.gives("r", "k")
    assert given == str(home)
    assert list(cache.environments.evictable()) == []
    tracked.stage = Stage.LAUNCHED
    assert [size for _, size, _ in cache.environments.evictable()] == [100]


def test_a_replica_that_is_gone_is_not_remembered_for_its_environment(
    tmp_path: Path, plain: None
) -> None:
    del plain
    cache = Cache(tmp_path)
    cache.has("k", size=100, used_at=DAY)
    known = weakref.ref(cache.gives("r", "k")[0])
    assert known() is not None
    cache.context.registry.remove("r")
    gc.collect()
    assert known() is None


def test_an_install_that_ended_well_while_no_agent_ran_gets_its_record(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    home, root = cache.own / "k.aa", cache.own / "k.aa.tmp"
    failed = cache.own / "k.bb.tmp"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    (cache.own / "k.lock").touch()
    for place, code in ((root, 0), (failed, 1)):
        place.mkdir()
        records.write(place / records.EXIT, an_end(exit_code=code))
    list(cache.environments.evictable())
    assert use(cache.own / "k") == str(home)
    assert not root.exists() and not failed.exists()


def test_a_kill_does_not_wait_for_the_installs_of_others(tmp_path: Path, plain: None) -> None:
    del plain
    cache = Cache(tmp_path)
    cache.environments._slots = threading.Semaphore(0)
    tracked = cache.waits("r", "k")
    assert not cache.environments.leave(tracked)
    eventually(lambda: cache.environments.leave(tracked))


@pytest.mark.parametrize("allowed", [False, True])
def test_an_install_is_limited_as_the_job_that_starts_it(tmp_path: Path, allowed: bool) -> None:
    """Also to the namespaces that it may create; the supervisor enforces it as for a replica."""
    run = a_run(memory_limit=1 << 30, user_namespaces=allowed)
    launch = _install.prepare(run, tmp_path / "key", "/usr/bin/python3", {}, seconds=9.0)
    names = ("cpu_request", "cpu_limit", "memory_limit", "pids_limit", "uid", "user_namespaces")
    limits: dict[str, object] = {**launch}
    asked: dict[str, object] = {**run}
    assert {name: limits[name] for name in names} == {name: asked[name] for name in names}
    assert limits["max_seconds"] == 9.0
