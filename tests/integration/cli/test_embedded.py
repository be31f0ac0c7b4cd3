"""The life of the embedded server, as the command line brings it about: who starts it, what a crash
leaves behind, what replaces it, and where its home may be.

`client/local_server.py` has its own tests in `tests/integration/test_embedded_server`;
here everything is typed in, and most of it while a job runs, because a job must not notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import __version__
from paddlecloud.client import local_server
from tests.integration.cli.person import WAIT, Done, Person, processes, until

pytestmark = pytest.mark.slow

Newcomer = Callable[..., Person]


@pytest.fixture
def running(shared: Person, tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A job that runs until it is told to end; its id, and what tells it."""
    gate = tmp_path / "gate"
    job_id = shared.submits(f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two")
    shared.waits_for(job_id, "running")
    yield job_id, gate.touch
    gate.touch()


def info(person: Person) -> dict[str, Any]:
    return local_server.read_info(str(person.home))


def rewrite_info(person: Person, **facts: Any) -> None:
    path = person.home / "server" / "server.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def crash(person: Person) -> int:
    """kill -9; the port where it was."""
    os.kill(person.server(), signal.SIGKILL)
    until(lambda: not local_server.is_alive(str(person.home)))
    return int(info(person)["url"].rpartition(":")[2])


def check_it_went_on(person: Person, job_id: str, end: Callable[[], None], pid: str) -> None:
    """The same process runs on, and nothing of its log is lost or doubled."""
    assert person.sees(job_id)["instance_ids_list"] == [pid]
    end()
    assert person.waits_for(job_id)["job_status"] == "success"
    assert person.types("logs", job_id).out == "one\ntwo\n"


def test_the_first_command_starts_a_server_and_says_so(newcomer: Newcomer) -> None:
    person = newcomer()
    first = person.runs("list_jobs", "--json")
    assert (first.code, first.json) == (0, [])
    assert first.err == "starting the embedded server ...\n"
    assert person.home.stat().st_mode & 0o777 == 0o700
    second = person.runs("list_jobs", "--json")
    assert (second.code, second.out, second.err) == (0, "[]\n", "")


@pytest.mark.parametrize("count", [2, 8])
def test_commands_at_the_same_moment_start_one_server(newcomer: Newcomer, count: int) -> None:
    person = newcomer()
    (person.here / "job").mkdir()
    submit = ("submit_job", "--files=job", "--start_cmd=echo hi")
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(person.starts(*submit)) for _ in range(count)]
        ended = [(process, *process.communicate(timeout=60)) for process in begun]
    assert [process.returncode for process, _, _ in ended] == [0] * count
    assert sum(b"starting" in err for _, _, err in ended) == 1
    assert person.server() == info(person)["pid"]
    ids = {out.decode().removeprefix("job_id: ").strip() for _, out, _ in ended}
    assert len(ids) == count
    assert {row["job_id"] for row in person.types("list_jobs", "--json").json} == ids
    for job_id in ids:
        assert person.waits_for(job_id)["job_status"] == "success"


def test_the_words_that_manage_it(shared: Person) -> None:
    assert shared.types("server", "stop").code == 0
    off = shared.runs("server", "status", "--json")
    assert (off.code, off.json["ready"], off.json["pid"]) == (1, False, None)
    told = shared.runs("server", "status")
    assert (told.code, told.out) == (
        1, "not running; any command starts it, or: paddlecloud server start\n",
    )  # fmt: skip
    started = shared.runs("server", "start", "--json")
    assert started.code == 0
    ready = shared.runs("server", "status", "--json")
    assert ready.code == 0
    assert ready.json == started.json
    assert ready.json == {
        "ready": True, "url": info(shared)["url"], "pid": shared.server(), "version": __version__,
    }  # fmt: skip
    assert shared.runs("server", "status").out == (
        f"running: {ready.json['url']} (pid {ready.json['pid']})\n"
    )
    assert shared.runs("server", "start").out == ready.json["url"] + "\n"
    logs = shared.runs("server", "logs", "-n", "1", "--json").json
    assert logs["path"] == str(shared.home / "server" / "server.log")
    assert len(logs["lines"]) == 1
    assert shared.runs("server", "logs", "-n1").out == logs["lines"][0] + "\n"
    for stopped in (True, False):
        said = shared.runs("server", "stop", "--json").json
        assert said == {"stopped": stopped, "agent_running": False}
    stopped_zh = shared.runs("server", "stop", PADDLECLOUD_LANG="zh")
    assert (stopped_zh.code, stopped_zh.err) == (0, "服务器原本未运行\n")


def test_its_log_can_be_followed(shared: Person) -> None:
    assert shared.types("server", "start").code == 0
    with shared.starts("server", "logs", "-f", "-n", "1") as follower:
        assert follower.stdout is not None
        heard = [follower.stdout.readline()]
        assert shared.types("server", "stop").code == 0
        while b"shutting down" not in heard[-1]:
            heard.append(follower.stdout.readline())
            assert heard[-1], "it follows to the end"
        said = (shared.home / "server" / "server.log").read_bytes().splitlines(keepends=True)
        began = said.index(heard[0])
        assert said[began : began + len(heard)] == heard, "each line once, from the last one on"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(WAIT) == 130
    assert shared.types("server", "logs", "-n", "0").out == ""


def test_a_stop_leaves_jobs_running_and_the_next_command_finds_them(
    shared: Person, running: tuple[str, Callable[[], None]]
) -> None:
    job_id, end = running
    (pid,) = shared.sees(job_id)["instance_ids_list"]
    assert shared.runs("server", "stop").err == "stopped; running jobs continue\n"
    os.kill(int(pid), 0)
    assert local_server.has_agent(str(shared.home))
    found = shared.runs("query_job", job_id)
    assert found.err == "starting the embedded server ...\n"
    assert "job_status: running\n" in found.out
    check_it_went_on(shared, job_id, end, pid)


def test_a_stop_with_nothing_running_ends_the_agent_too(shared: Person) -> None:
    shared.waits_for(shared.submits("echo hi"))
    assert local_server.has_agent(str(shared.home))
    assert shared.runs("server", "stop", PADDLECLOUD_LANG="zh").err == "已停止\n"
    assert not local_server.has_agent(str(shared.home))
    again = shared.runs("server", "start", "--json")
    stopped = shared.types("server", "stop", "--json")
    assert (again.code, stopped.json) == (0, {"stopped": True, "agent_running": False})
    assert shared.waits_for(shared.submits("echo hi"))["job_status"] == "success"


def test_a_job_that_ends_while_the_server_is_away_is_not_lost(
    shared: Person, running: tuple[str, Callable[[], None]]
) -> None:
    job_id, end = running
    (pid,) = shared.sees(job_id)["instance_ids_list"]
    assert shared.types("server", "stop").code == 0
    end()
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert shared.waits_for(job_id)["job_status"] == "success"
    assert shared.types("logs", job_id).out == "one\ntwo\n"


def test_a_crash_is_repaired_by_the_next_command(
    shared: Person, running: tuple[str, Callable[[], None]]
) -> None:
    job_id, end = running
    (pid,) = shared.sees(job_id)["instance_ids_list"]
    before = info(shared)
    crash(shared)
    assert info(shared) == before, "the crash left it behind"
    found = shared.runs("query_job", job_id)
    assert (found.code, found.err) == (0, "starting the embedded server ...\n")
    assert info(shared)["boot"] != before["boot"]
    check_it_went_on(shared, job_id, end, pid)


def test_a_pid_of_nobody_in_a_stale_file_is_no_obstacle(shared: Person) -> None:
    assert shared.types("server", "start").code == 0
    crash(shared)
    rewrite_info(shared, pid=2**22 + 1, boot="old")
    status = shared.types("server", "status", "--json").json
    assert status == {"ready": False, "url": None, "pid": None, "version": None}
    assert shared.types("server", "stop", "--json").json["stopped"] is False
    assert shared.runs("list_jobs").code == 0
    assert info(shared)["pid"] == shared.server()


@pytest.mark.parametrize("torn", [b'{"url": 1}', b"\xff\xfe"])
def test_a_torn_file_is_no_obstacle(shared: Person, torn: bytes) -> None:
    assert shared.types("server", "start").code == 0
    assert shared.types("server", "stop").code == 0
    (shared.home / "server" / "server.json").write_bytes(torn)
    done = shared.types("list_jobs")
    assert (done.code, done.err) == (0, "starting the embedded server ...\n")


def _mute(connection: socket.socket) -> None:
    """Takes what it is sent and never answers."""
    while connection.recv(65536):
        pass


def _rude(connection: socket.socket) -> None:
    """Hangs up."""


def _other(connection: socket.socket) -> None:
    """Speaks another protocol."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    _mute(connection)


def _web(connection: socket.socket) -> None:
    """Another program's web page."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno")


@contextlib.contextmanager
def sitting_at(port: int, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Another program at that port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    taken: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                taken.append(connection)
                with connection, contextlib.suppress(OSError):
                    answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for connection in taken:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


@pytest.mark.parametrize("answer", [_mute, _rude, _other, _web])
def test_another_program_at_its_port_is_not_taken_for_it(
    shared: Person, answer: Callable[[socket.socket], None]
) -> None:
    assert shared.types("server", "start").code == 0
    port = crash(shared)
    with sitting_at(port, answer):
        assert shared.types("server", "status").code == 1
        done = shared.types("list_jobs", "--json")
        assert (done.code, done.err) == (0, "starting the embedded server ...\n")
        assert not info(shared)["url"].endswith(f":{port}")
        assert shared.types("list_jobs", "--json") == Done(code=0, out=done.out, err="")


def test_an_older_server_is_replaced_under_a_running_job(
    shared: Person, running: tuple[str, Callable[[], None]]
) -> None:
    job_id, end = running
    (pid,) = shared.sees(job_id)["instance_ids_list"]
    before = info(shared)
    rewrite_info(shared, version="0.0.0")
    done = shared.runs("query_job", job_id)
    replaced, starting = done.err.splitlines()
    assert (done.code, starting) == (0, "starting the embedded server ...")
    assert replaced == (f"upgrading the server from 0.0.0 to {__version__}; running jobs continue")
    assert info(shared)["version"] == __version__
    assert info(shared)["pid"] == shared.server() != before["pid"]
    check_it_went_on(shared, job_id, end, pid)


def test_a_newer_server_is_left_alone(shared: Person) -> None:
    assert shared.types("server", "start").code == 0
    before = shared.server()
    rewrite_info(shared, version="99.0.0")
    done = shared.runs("list_jobs")
    assert (done.code, done.err) == (0, "")
    assert shared.server() == before
    assert shared.types("server", "status", "--json").json["version"] == "99.0.0"
    rewrite_info(shared, version=__version__)


@pytest.mark.parametrize(
    "name",
    ['a home with blanks & "signs"', "家目录-é", "deep/" * 30 + "home", "x" * 200],
    ids=["blanks", "letters", "deep", "long"],
)
def test_a_home_may_be_anywhere(newcomer: Newcomer, name: str) -> None:
    """Deep ones too: the address of a unix socket holds about a hundred bytes."""
    person = newcomer(name)
    source = person.here / "代码 1"
    source.mkdir()
    (source / "run.sh").write_text('echo "$(cat 数据.txt)"; echo done > "$OUTPUT_PATH/a b.txt"\n')
    (source / "数据.txt").write_text("你好\n")
    words = (f"--files={source}", "--start_cmd=sh run.sh", "--watch_mode=1")
    done = person.runs("submit_job", *words)
    assert done.code == 0, done.err
    first, *log = done.out.splitlines()
    assert log == ["你好"]
    listed = person.types("get_files", first.removeprefix("job_id: ")).out
    assert "/rank-0/a b.txt\t5\t" in listed


def test_a_person_without_home(shared: Person) -> None:
    """HOME may be unset, in a container or under cron; the account's own is then used."""
    environ = shared.environ()
    del environ["HOME"]
    with _only_these(shared, environ):
        assert _configured_home(shared) == str(shared.home)
        job_id = shared.submits("echo at $HOME")
        assert shared.waits_for(job_id)["job_status"] == "success"
        assert shared.types("logs", job_id).out.startswith("at /")
        del environ["PADDLECLOUD_HOME"]
        account = pwd.getpwuid(os.getuid()).pw_dir
        assert _configured_home(shared) == f"{account}/.paddlecloud"


def _configured_home(person: Person) -> str:
    """Asking for it starts nothing."""
    rows = person.types("config", "show", "--json").json
    (home,) = [row["value"] for row in rows if row["name"] == "home"]
    return str(home)


@contextlib.contextmanager
def _only_these(person: Person, environ: dict[str, str]) -> Iterator[None]:
    """The person's environment, exactly."""
    usual = person.environ
    person.environ = lambda more=None: environ | (more or {})  # type: ignore[method-assign]
    try:
        yield
    finally:
        person.environ = usual  # type: ignore[method-assign]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_home_that_may_not_be_written_is_one_sentence(
    newcomer: Newcomer, tmp_path: Path, lang: str
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    person = newcomer("locked/home")
    for words in (("list_jobs",), ("server", "start")):
        done = person.runs_as_anybody(*words, PADDLECLOUD_LANG=lang)
        assert (done.code, done.out) == (1, "")
        assert done.err.count("\n") == 1
        assert str(person.home) in done.err
        assert "PADDLECLOUD_HOME" in done.err
    assert processes("paddlecloud.server", str(person.home)) == []
    status = person.runs_as_anybody("server", "status", "--json")
    assert (status.code, status.json["ready"]) == (1, False)


@pytest.mark.parametrize("words", [("list_jobs",), ("server", "status"), ("server", "stop")])
@pytest.mark.parametrize(("locked", "code"), [("", 2), ("server", 1), ("server/lock", 1)])
def test_the_home_of_another_is_one_sentence(
    newcomer: Newcomer, words: tuple[str, ...], locked: str, code: int
) -> None:
    """It is there, but it, or a part of it, may not be used."""
    person = newcomer("theirs")
    (person.home / "server").mkdir(parents=True)
    (person.home / "server" / "lock").touch()
    (person.home / locked).chmod(0o000)
    try:
        done = person.runs_as_anybody(*words)
    finally:
        (person.home / locked).chmod(0o700)
    assert (done.code, done.out) == (code, ""), done
    assert done.err.count("\n") == 1
    assert str(person.home / locked) in done.err
    assert "made a mistake" not in done.err


def test_two_homes_do_not_disturb_each_other(shared: Person, newcomer: Newcomer) -> None:
    other = newcomer("another")
    mine, theirs = shared.submits("echo mine"), other.submits("echo theirs")
    assert shared.waits_for(mine)["job_status"] == "success"
    assert other.waits_for(theirs)["job_status"] == "success"
    assert shared.server() != other.server()
    assert shared.types("query_job", theirs).code == 1
    assert other.types("query_job", mine).code == 1
    assert [row["job_id"] for row in other.types("list_jobs", "--json").json] == [theirs]
    assert shared.types("server", "stop").code == 0
    assert other.types("server", "status").code == 0
    check_keys_of_another(shared, other)


def check_keys_of_another(mine: Person, other: Person) -> None:
    """A configuration that names one server and holds the keys of another."""
    assert mine.types("server", "start").code == 0
    keys = json.loads((mine.home / "server" / "credentials.json").read_text())
    host = info(other)["url"]
    wrong = _configured(other, host, keys["ak"], keys["sk"])
    done = other.types("list_jobs", f"--config={wrong}")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert keys["ak"] in done.err
    assert keys["sk"] not in done.err
    own = json.loads((other.home / "server" / "credentials.json").read_text())
    wrong = _configured(other, host, own["ak"], "0" * 32)
    done = other.types("list_jobs", f"--config={wrong}")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "check the sk" in done.err
    right = _configured(other, host, own["ak"], own["sk"])
    assert other.types("list_jobs", f"--config={right}").code == 0
    # Without a host the embedded server is meant, and its own keys are used.
    stray = _configured(other, "", keys["ak"], keys["sk"])
    assert other.types("list_jobs", f"--config={stray}").code == 0


def _configured(person: Person, host: str, ak: str, sk: str) -> Path:
    path = person.here / "client.conf"
    path.write_text(f"[main]\nak = {ak}\nsk = {sk}\n[openapi]\nhost = {host}\n")
    path.chmod(0o600)
    return path


def test_settings_that_cannot_be_read_are_told_once(newcomer: Newcomer) -> None:
    person = newcomer()
    person.home.mkdir()
    (person.home / "server.toml").write_text("[runing]\ngrace = 1\n")
    done = person.runs("list_jobs")
    assert (done.code, done.out) == (1, "")
    starting, told = done.err.splitlines()
    assert starting == "starting the embedded server ..."
    assert "server.toml" in told
    assert "running" in told
    assert "Traceback" not in told
