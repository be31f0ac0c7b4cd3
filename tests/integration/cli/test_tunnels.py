"""Ports and terminals of a running job on the person's own machine; everything real."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.cli.person import PROGRAM, Person, processes, until

MIB = 1024 * 1024
# Gives back what it gets: at once ("e"), or all of it after its end ("w").
ECHO = """
import socket, threading
def serve(connection):
    with connection:
        kept, kind = [], connection.recv(1)
        while data := connection.recv(65536):
            connection.sendall(data) if kind == b"e" else kept.append(data)
        connection.sendall(b"".join(kept))
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
open("port.new", "w").write(str(listener.getsockname()[1]))
import os; os.rename("port.new", "port")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""
_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(scope="module")
def job(shared: Person) -> Iterator[str]:
    """A job that gives back what it gets."""
    job_id = begun(shared)
    yield job_id
    shared.types("kill_job", job_id)


def begun(person: Person) -> str:
    (person.here / "empty").mkdir(exist_ok=True)
    (person.here / "empty" / "echo.py").write_text(ECHO)
    job_id = person.submits("exec python3 echo.py")
    until(lambda: port_of(person, job_id))
    return job_id


def port_of(person: Person, job_id: str) -> int:
    file = person.home / "agent" / "replicas" / f"{job_id}.1.trainer-0" / "work" / "port"
    return int(file.read_text()) if file.exists() else 0


@contextmanager
def forwarded(
    person: Person, job_id: str, remote: int = 0
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The local port, and the command that forwards it."""
    remote = remote or port_of(person, job_id)
    with person.starts("port-forward", job_id, f"0:{remote}", "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["worker"], said["remote"], said["job_id"]) == ("trainer-0", remote, job_id)
        yield said["local"], process


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def returned(port: int, data: bytes) -> bytes:
    """What the job gives back of `data` after it has all of it."""
    with connected(port) as connection:
        connection.sendall(b"w" + data)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as file:
            return file.read()


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_arrive_whole_both_ways_and_on_many_connections(shared: Person, job: str) -> None:
    with forwarded(shared, job) as (port, _):
        data = os.urandom(16 * MIB)
        assert hashlib.sha256(returned(port, data)).digest() == hashlib.sha256(data).digest()
        asked = [b"%d" % number * 1000 for number in range(50)]
        got: dict[int, bytes] = {}
        together = threading.Barrier(len(asked))

        def ask(number: int) -> None:
            together.wait(30)
            got[number] = returned(port, asked[number])

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [got.get(number) for number in range(50)] == asked


def test_what_is_wrong_is_one_sentence(shared: Person, job: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nothing = free.getsockname()[1]
    with forwarded(shared, job, nothing) as (port, process):
        for _ in range(2):
            with connected(port) as connection:
                assert closed(connection)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert err.count(b"nothing listens on port %d of trainer-0" % nothing) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        done = shared.types("port-forward", job, f"{used}:80")
        assert (done.code, done.out) == (1, "")
        assert f"port {used} of this machine is in use" in done.err and "0:80" in done.err
    assert "abc is no port" in shared.types("port-forward", job, "abc").err
    assert "needs a port" in shared.types("port-forward", job).err
    assert "trainer-0" in shared.types("port-forward", job, "80", "-w", "trainer-9").err
    done = shared.types("port-forward", "job-" + "0" * 32, "80")
    assert (done.code, done.out) == (1, "")


class Screen:
    """A terminal with a command in it."""

    def __init__(self, person: Person, *words: str) -> None:
        self.master, self.slave = os.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WITH_TERMINAL, PROGRAM, *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=person.here,
            env=person.environ({"TERM": "vt220"}),
            start_new_session=True,
        )
        os.set_blocking(self.master, False)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, keys: str) -> None:
        self.seen = b""
        os.write(self.master, keys.encode())

    def shows(self, text: str) -> None:
        def is_there() -> bool:
            with suppress(BlockingIOError):
                self.seen += os.read(self.master, 65536)
            return text.encode() in self.seen

        until(is_there)

    def ends(self) -> int:
        code = self.process.wait(timeout=30)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not restored"
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@contextmanager
def screen(person: Person, *words: str) -> Iterator[Screen]:
    made = Screen(person, *words)
    try:
        yield made
    finally:
        made.close()


SHELL = ("sh", "-c", "PS1='ready> ' exec sh")


def test_a_shell_has_a_real_terminal(shared: Person, job: str) -> None:
    with screen(shared, "exec", "-it", job, "--", *SHELL) as one:
        one.shows("ready> ")
        one.types("stty size; echo $TERM; test -t 0 && test -t 2 && cat < /dev/tty\r")
        one.shows("30 100\r\nvt220\r\n")
        one.types("typed\r")
        one.shows("typed\r\ntyped\r\n")
        one.resize(41, 121)
        one.types("\x04trap 'stty size' WINCH; stty size\r")
        one.shows("41 121\r\n")
        one.types("sleep 6001\r")
        until(lambda: processes("sleep\x006001"))
        one.types("\x03")
        one.shows("ready> ")
        assert not processes("sleep\x006001")
        one.types("exit 7\r")
        assert one.ends() == 7


def test_a_terminal_ends_in_every_case_as_it_was(shared: Person, job: str) -> None:
    with screen(shared, "exec", "-t", job, "--timeout=1", "--", "sleep", "601") as one:
        assert one.ends() == 124
        one.shows("after 1 s")
    with screen(shared, "exec", "-it", job, "--", *SHELL) as one:
        one.shows("ready> ")
        one.process.send_signal(signal.SIGTERM)
        assert one.ends() == 128 + signal.SIGTERM
    with screen(shared, "exec", "-it", job, "--", "no-such-program") as one:
        one.shows("no-such-program: No such file")
        assert one.ends() == 127
    assert "needs a terminal" in shared.runs("exec", "-it", job, "--", "sh").err
    assert "has no JSON" in shared.types("exec", "-it", "--json", job, "--", "sh").err


def test_a_client_that_is_killed_takes_its_command_along(shared: Person, job: str) -> None:
    with screen(shared, "exec", "-it", job, "--", "sh", "-c", "exec sleep $((6000 + 2))") as one:
        until(lambda: processes("sleep\x006002"))
        one.process.kill()
        until(lambda: not processes("sleep\x006002"))


@pytest.mark.slow(seconds=10)
def test_everybody_may_go_away(shared: Person) -> None:
    job_id = begun(shared)
    with (
        forwarded(shared, job_id) as (port, process),
        connected(port) as one,
        screen(shared, "exec", "-it", job_id, "--", *SHELL) as shell,
    ):
        one.sendall(b"e1")
        assert one.recv(1) == b"1"
        shell.shows("ready> ")
        os.kill(the_agent(shared), signal.SIGKILL)
        assert closed(one)
        assert shell.ends() == 1
        shell.shows("was lost")
        # The next connection goes to the next agent.
        until(lambda: answers(port))
        with connected(port) as two, screen(shared, "exec", "-it", job_id, "--", *SHELL) as again:
            two.sendall(b"e2")
            assert two.recv(1) == b"2"
            again.shows("ready> ")
            os.kill(shared.server(), signal.SIGKILL)
            assert closed(two)
            assert again.ends() == 1
        assert shared.types("server", "start").code == 0
        until(lambda: answers(port))
        assert shared.types("kill_job", job_id).code == 0
        shared.waits_for(job_id)
        assert not answers(port)
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None
        assert b"is not running" in process.stderr.read()


def answers(port: int) -> bool:
    try:
        return returned(port, b"hello") == b"hello"
    except OSError:
        return False


def the_agent(person: Person) -> int:
    def pids() -> list[int]:
        found = processes("paddlecloud.agent", str(person.home))
        return [pid for pid in found if not name_of(pid).startswith("pc-")]

    until(lambda: len(pids()) == 1)
    return pids()[0]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return "pc-gone"
