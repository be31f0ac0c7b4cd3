"""Looking into a job that runs: commands beside it, and what it uses; everything real."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paddlecloud.agent.exec import _spool
from paddlecloud.server.services.exec import output
from tests.integration.cli.person import PROGRAM, Person, processes, until

MIB = 1024 * 1024
WINDOW = output.WINDOW
MOST_KEPT = WINDOW + _spool.MAX_CHUNKS * _spool.CHUNK_BYTES


@pytest.fixture(scope="module")
def sleeper(shared: Person) -> Iterator[str]:
    """A job that waits, for commands beside it."""
    job_id = shared.submits("echo mine > note; exec sleep 600", "--env=COLOUR=green")
    shared.waits_for(job_id, "running")
    note = place(shared, job_id) / "work" / "note"
    until(lambda: note.exists() and note.read_text())
    yield job_id
    shared.types("kill_job", job_id)


def place(person: Person, job_id: str) -> Path:
    return person.home / "agent" / "replicas" / f"{job_id}.1.trainer-0"


def kept(person: Person, job_id: str) -> int:
    """Bytes of the newest command's output on the disks of server and agent."""
    stored = sizes(*person.home.glob(f"store/users/*/commands/{job_id}/*.out*"))
    newest = max(stored, key=lambda path: stored[path][0]).name[:32]
    brought = sum(size for path, (_, size) in stored.items() if path.name.startswith(newest))
    return brought + sum(size for _, size in sizes(*agents_pieces(person, newest)).values())


def agents_pieces(person: Person, command: str) -> list[Path]:
    return list((person.home / "agent" / "commands" / command).glob("out*"))


def sizes(*paths: Path) -> dict[Path, tuple[float, int]]:
    """When each was written and its bytes; without those that were let go meanwhile."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            stat = path.stat()
            found[path] = (stat.st_mtime, stat.st_size)
    return found


def the_agent(person: Person) -> int:
    """Its pid; zygote, supervisors and whatever stands beside a command have names of their own."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = processes("paddlecloud.agent", str(person.home))
        found[:] = [pid for pid in found if not name_of(pid).startswith("pc-")]
        return len(found) == 1

    until(is_there)
    return found[0]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return "pc-gone"


def test_it_has_the_environment_and_the_place_of_its_worker(shared: Person, sleeper: str) -> None:
    script = "echo $COLOUR $PADDLE_TRAINER_ID; pwd; cat note; echo oops >&2; exit 7"
    done = shared.runs("exec", sleeper, "-w", "trainer-0", "--", "sh", "-c", script)
    work = place(shared, sleeper) / "work"
    assert done.code == 7
    assert done.out == f"green 0\n{work}\nmine\n"
    assert done.err == "oops\n"


def test_as_json_it_is_one_answer(shared: Person, sleeper: str) -> None:
    done = shared.types("exec", "--json", sleeper, "sh", "-c", "echo a; echo b >&2; kill -9 $$")
    assert done.code == 128 + signal.SIGKILL
    view = done.json
    assert (view["stdout"], view["stderr"]) == ("a\n", "b\n")
    assert (view["exit_code"], view["cause"], view["worker"]) == (137, "exit", "trainer-0")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("no-such-program",), 127, "no-such-program: No such file"),
        (("./note",), 126, "./note: Permission denied"),
        (("--timeout=1", "--", "sleep", "60"), 124, "after 1 s"),
    ],
)
def test_what_goes_wrong_is_said(
    shared: Person, sleeper: str, words: tuple[str, ...], code: int, says: str
) -> None:
    before = words if words[0].startswith("--") else ("--", *words)
    done = shared.types("exec", sleeper, *before)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


@pytest.mark.slow
def test_a_command_whose_helper_is_killed_does_not_run_on(shared: Person, sleeper: str) -> None:
    file = place(shared, sleeper) / "work" / "command"
    script = "echo $$ > command.new; mv command.new command; exec env -i sleep 600"
    words = [PROGRAM, "exec", sleeper, "--", "sh", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stderr=pipe, cwd=shared.here, env=shared.environ()) as command:
        until(file.exists)
        pid = int(file.read_text())
        helper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert name_of(helper).strip() == "pc-exec"
        os.kill(helper, signal.SIGKILL)
        _, said = command.communicate(timeout=60)
    assert b"killed" in said
    assert not Path(f"/proc/{pid}").exists()


def test_what_is_piped_in_and_what_comes_out_arrive_whole(shared: Person, sleeper: str) -> None:
    data = os.urandom(MIB)
    script = "sha256sum; i=0; while [ $i -lt 3 ]; do head -c 1000000 /dev/zero; i=$((i+1)); done"
    done = subprocess.run(
        [PROGRAM, "exec", sleeper, "--", "sh", "-c", script],
        input=data,
        capture_output=True,
        cwd=shared.here,
        env=shared.environ(),
        timeout=30,
        check=True,
    )
    first, _, rest = done.stdout.partition(b"\n")
    assert first.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert rest == bytes(3_000_000)
    too_much = subprocess.run(
        [PROGRAM, "exec", sleeper, "--", "cat"],
        input=data + b"x",
        capture_output=True,
        cwd=shared.here,
        env=shared.environ(),
        timeout=30,
        check=False,
    )
    assert too_much.returncode == 1
    assert f"more than {MIB} bytes" in too_much.stderr.decode()


def test_it_waits_for_who_reads_and_ends_with_him(shared: Person, sleeper: str) -> None:
    endless = "exec yes a-line-of-this-test"
    with shared.starts("exec", sleeper, "--", "sh", "-c", endless) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a-line-of-this-test\n"
        until(lambda: kept(shared, sleeper) >= WINDOW)
        assert kept(shared, sleeper) <= MOST_KEPT
        done = shared.types("exec", sleeper, "--", "echo", "another")
        assert (done.code, done.out) == (0, "another\n")
        process.stdout.close()
        assert process.wait(timeout=30) == 128 + signal.SIGPIPE
    until(lambda: not processes("yes\0a-line-of-this-test"))


def test_ctrl_c_stops_it(shared: Person, sleeper: str) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with shared.starts("exec", sleeper, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b"bye\n"
    assert b"stopped" in err
    assert not processes("trap 'echo bye; exit 3' TERM")


def test_it_ends_with_its_worker_and_leaves_nothing(shared: Person) -> None:
    job_id = shared.submits("exec sleep 600")
    shared.waits_for(job_id, "running")
    with shared.starts("exec", job_id, "--", "sh", "-c", "echo up; sleep 599 & sleep 599") as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"up\n"
        assert shared.types("kill_job", job_id).code == 0
        _, err = one.communicate(timeout=60)
    assert one.returncode == 128 + signal.SIGTERM
    assert b"because trainer-0 has ended" in err
    assert not processes("sleep\0599")
    shared.waits_for(job_id, "killed")
    commands = shared.home / "agent" / "commands"
    until(lambda: not list(commands.iterdir()))
    done = shared.types("exec", job_id, "--", "true")
    assert (done.code, done.out) == (1, "")
    assert "is not running" in done.err


@pytest.mark.slow
def test_it_goes_on_while_the_agent_is_killed(shared: Person, sleeper: str) -> None:
    script = "i=0; while [ $i -lt 30 ]; do echo $i; sleep 0.1; i=$((i+1)); done; exit 5"
    with shared.starts("exec", sleeper, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        os.kill(the_agent(shared), signal.SIGKILL)
        out, err = process.communicate(timeout=40)
    assert (process.returncode, err) == (5, b"")
    assert out.split() == [str(number).encode() for number in range(1, 30)]


@pytest.mark.slow
def test_who_waits_for_it_goes_on_after_a_restart_of_the_server(
    shared: Person, sleeper: str
) -> None:
    script = "i=0; while [ $i -lt 40 ]; do echo $i; sleep 0.1; i=$((i+1)); done; exit 6"
    with shared.starts("exec", sleeper, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert shared.types("server", "stop").code == 0
        assert shared.types("server", "start").code == 0
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 6
    assert out.split() == [str(number).encode() for number in range(1, 40)]


COUNT = "seq 1 9999999 | head -c 40000000"


@pytest.mark.slow
def test_more_than_any_disk_of_ours_keeps_arrives_whole(shared: Person, sleeper: str) -> None:
    script = f"{COUNT}; seq 1 9999999 | head -c 20000000 >&2; exit 4"
    with shared.starts("exec", sleeper, "--", "sh", "-c", script) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 4
    assert_counted(out, 40_000_000)
    assert_counted(err, 20_000_000)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_agent_and_server_die_meanwhile(
    shared: Person, sleeper: str
) -> None:
    out = b""
    with shared.starts("exec", sleeper, "--", "sh", "-c", COUNT) as process:
        assert process.stdout is not None
        for stage in range(4):
            out += process.stdout.read(7_000_000)
            if stage % 2:
                assert shared.types("server", "stop").code == 0
                assert shared.types("server", "start").code == 0
            else:
                os.kill(the_agent(shared), signal.SIGKILL)
        out += process.stdout.read()
        assert process.wait(timeout=30) == 0
    assert_counted(out, 40_000_000)


def assert_counted(found: bytes, size: int) -> None:
    expected = "".join(f"{n}\n" for n in range(1, size // 7)).encode()[:size]
    assert len(found) == size
    assert hashlib.sha256(found).digest() == hashlib.sha256(expected).digest()


@pytest.mark.slow
def test_a_worker_that_does_nothing_is_quiet(shared: Person, sleeper: str) -> None:
    def quiet() -> float:
        (row,) = shared.types("top", sleeper, "--json").json["workers"]
        return float(row["usage"]["quiet"]) if row["usage"] else 0.0

    until(lambda: quiet() > 4.0)
    (row,) = shared.types("top", sleeper, "--json").json["workers"]
    assert row["usage"]["cpu"] < 0.01
    assert 0 < row["usage"]["memory"] < 20 * MIB


@pytest.mark.slow
def test_top_shows_what_a_job_uses(shared: Person) -> None:
    program = "x = bytearray(200 * 2**20)\nwhile True: pass"
    job_id = shared.submits(f'exec python3 -c "{program}"', "--memory=300MB")
    shared.waits_for(job_id, "running")

    def told() -> bool:
        (row,) = shared.types("top", job_id, "--json").json["workers"]
        usage = row["usage"]
        # Other programs may want the CPU as well, so only its upper bound, below, is sharp.
        return usage is not None and usage["memory"] > 190 * MIB and usage["cpu"] > 0.05

    until(told)
    (row,) = shared.types("top", job_id, "--json").json["workers"]
    assert row["usage"]["cpu"] < 1.3
    assert 190 * MIB < row["usage"]["memory"] < 240 * MIB
    assert row["asked"]["memory"] == 300_000_000 or row["asked"]["memory"] == 300 * MIB
    line = shared.types("top", "--once").out
    assert job_id in line and "MiB" in line and "/ 1" in line
    assert shared.types("kill_job", job_id).code == 0
    (worker,) = shared.waits_for(job_id, "killed")["workers"]
    assert worker["usage"] is None
    assert 190 * MIB < worker["peak_memory"] < 240 * MIB


def test_top_of_nothing_says_so(shared: Person) -> None:
    done = shared.types("top", "--json")
    assert all(row["state"] in ("ordered", "running") for row in done.json["workers"])
    done = shared.types("exec", "job-" + "0" * 32, "--", "true")
    assert (done.code, done.out) == (1, "")
    done = shared.types("exec", "job-" + "0" * 32)
    assert done.code == 2
    assert "after --" in done.err
