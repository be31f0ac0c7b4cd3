"""The commands as a person uses them on their own machine: what is printed, and where.

One real server for all of them. What a job meets while it runs is in `test_jobs.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import __version__
from tests.integration.cli.person import PROGRAM, WAIT, Person, until

JOB_ID = r"job-[0-9a-f]{32}"
CLOCK = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
UTC = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@dataclass(frozen=True, kw_only=True)
class World:
    person: Person
    plain: str
    """A finished job with some of everything."""


@pytest.fixture(scope="module")
def world(shared: Person) -> World:
    shared.home.mkdir()
    (shared.home / "server.toml").write_text(
        'time_zone = "Asia/Shanghai"\nname = "laptop"\n[running]\ngrace = 0.5\n'
    )
    source = shared.here / "plsc"
    (source / "data").mkdir(parents=True)
    (source / "data" / "label.txt").write_text("cat\n")
    (source / "run.sh").write_text(
        "echo 开始; cat data/label.txt >&2; seq 3\n"
        "mkdir $OUTPUT_PATH/0; printf model > $OUTPUT_PATH/0/w_0; echo extra > $LOCAL_LOG_PATH/x\n"
    )
    done = shared.types("submit_job", "--files=plsc", "--start_cmd=sh run.sh")
    assert done.code == 0, done.err
    job_id = done.out.removeprefix("job_id: ").strip()
    shared.waits_for(job_id)
    return World(person=shared, plain=job_id)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that jobs wait for; it is there at the end of the test at the latest."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def waiting(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.05; done"


LOG = "开始\ncat\n1\n2\n3\n"


def test_submit_prints_one_line_and_says_what_it_assumed(world: World) -> None:
    done = world.person.runs("submit_job", "--file", "plsc", "--start_cmd", "true")
    assert done.code == 0
    assert re.fullmatch(f"job_id: {JOB_ID}\n", done.out)
    assert done.err == (
        "files: 2 (135 B); the largest: run.sh (131 B), data/label.txt (4 B)\n"
        "job_type is not given and no machine has a GPU: the job runs as job_type=cpu\n"
    )
    chinese = world.person.runs(
        "submit_job", "--files=plsc", "--start_cmd=true", "--json", PADDLECLOUD_LANG="zh"
    )
    assert re.fullmatch(JOB_ID, chinese.json["job_id"])
    assert CHINESE.search(chinese.err)
    assert chinese.json["notes"] == chinese.err.splitlines()[1:]
    for job_id in (done.out.removeprefix("job_id: ").strip(), chinese.json["job_id"]):
        world.person.waits_for(job_id)  # the next test looks at what is stored


def test_submit_with_every_parameter(world: World) -> None:
    done = world.person.runs(
        "submit_job", "--files=./plsc/", "--start_cmd=echo $GREETING $TARGET",
        "--job_name=训练 1", "--cluster=default", "--public_bcc=1", "--public_bos=1",
        "--job_type=cpu", "--instance_count=1", "--wall_time=01:02:03", "--watch_mode=0",
        "--cpu=0.5", "--memory=256Mi", "--gpu=0", "--env", "GREETING=hello world",
        "--env=TARGET=a=b", "--description=第一次\n尝试", "--max_retries=2", "--priority=-5",
    )  # fmt: skip
    assert (done.code, done.err.splitlines()[1:]) == (0, [])
    job_id = done.out.removeprefix("job_id: ").strip()
    view = world.person.waits_for(job_id)
    assert view["job_status"] == "success"
    wanted: dict[str, Any] = {
        "job_name": "训练 1", "cluster": "default", "public_bcc": 1, "public_bos": 1,
        "job_type": "cpu", "instance_count": 1, "wall_time": "01:02:03",
        "resources": {"cpu": 0.5, "memory": 2**28, "gpu": 0},
        "env": {"GREETING": "hello world", "TARGET": "a=b"}, "description": "第一次\n尝试",
    }  # fmt: skip
    assert {key: view[key] for key in wanted} == wanted
    assert view["bos_url"].endswith("/plsc")
    assert world.person.types("logs", job_id).out == "hello world a=b\n"


def test_the_same_directory_again_moves_nothing(world: World) -> None:
    _, snapshots, before = world.person.stored()
    job_id = world.person.submits("true")
    world.person.waits_for(job_id)
    _, snapshots, before = world.person.stored()
    again = world.person.submits("true")
    world.person.waits_for(again)
    _, snapshots_after, after = world.person.stored()
    assert snapshots_after == snapshots
    assert all(again in path for path in after - before)


def test_what_is_no_file_is_left_out_and_said(world: World, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("ls -A\n")
    (tmp_path / ".git").mkdir()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        words = (f"--files={tmp_path}", "--start_cmd=sh run.sh", "--job_type=cpu", "--watch_mode=1")
        done = world.person.runs("submit_job", *words)
    assert done.code == 0
    assert done.out.splitlines()[1:] == ["run.sh"]
    assert "not submitted: .git/, door [default]\n" in done.err


def test_query_prints_the_seventeen_keys(world: World) -> None:
    done = world.person.runs("query_job", f"--job_id={world.plain}")
    assert (done.code, done.err) == (0, "")
    shape = [
        r"bos_url: paddlecloud-public\.laptop/[0-9a-z_-]+/plsc", f"create_time: {CLOCK}",
        "error_msg:", f"finish_time: {CLOCK}", "instance_count: 1", r"instance_ids_list: \d+",
        f"job_id: {world.plain}", "job_name: tmp_job", "job_status: success", "job_type: cpu",
        "kill_flag: 0", "public_bcc: 1", "public_bos: 1", "queue_reason:", "start_cmd: sh run.sh",
        f"start_time: {CLOCK}", "wall_time:",
    ]  # fmt: skip
    lines = done.out.splitlines()
    assert len(lines) == len(shape) == 17
    assert lines == sorted(lines, key=lambda line: line.partition(":")[0])
    for line, wanted in zip(lines, shape, strict=True):
        assert re.fullmatch(wanted, line), line
    view = world.person.sees(world.plain)
    assert {line.partition(":")[0] for line in lines} | {
        "queue_reason", "error_msg", "exit_code", "attempts", "workers",
    } <= set(view)  # fmt: skip
    assert (view["exit_code"], view["attempts"], view["workers"][0]["name"]) == (0, 1, "trainer-0")
    # The server's time zone is eight hours ahead of UTC.
    assert view["create_time"][11:13] == f"{(int(view['created_at'][11:13]) + 8) % 24:02}"


def test_get_files_lists_as_in_the_documents(world: World) -> None:
    done = world.person.runs("get_fils", f"--job_id={world.plain}")
    assert (done.code, done.err) == (0, "")
    root = f"output/{world.plain}"
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[:2] for row in rows] == [
        [f"{root}/", "0"],
        [f"{root}/log/rank-0/x", "6"],
        [f"{root}/log/trainer-0.log", str(len(LOG.encode()))],
        [f"{root}/rank-0/0/w_0", "5"],
    ]
    assert all(re.fullmatch(UTC, row[2]) for row in rows)
    everything = world.person.types("get_files", world.plain, "--prefix=/", "--json").json
    paths = [row["path"] for row in everything["files"]]
    assert {"run.sh", "data/label.txt", f"{root}/rank-0/0/w_0"} <= set(paths)
    only = world.person.types("get_files", world.plain, f"--prefix={root}/log").out
    assert only.count("\n") == 2


def test_get_files_downloads(world: World, tmp_path: Path) -> None:
    """As in the documents: the log ends up below output/<job_id>/log/."""
    root = f"output/{world.plain}"
    person = Person(home=world.person.home, here=tmp_path)
    words = ("get_files", f"--job_id={world.plain}", "--download=1")
    done = person.runs(*words, f"--prefix={root}/log")
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / root / "log" / "trainer-0.log").read_text() == LOG
    assert not (tmp_path / root / "rank-0").exists()
    taken = person.runs(*words)
    assert (taken.code, taken.out) == (2, "")
    assert root in taken.err
    assert "--download_dir" in taken.err
    assert person.runs(*words, "--download_dir=deep/result").code == 0
    assert (tmp_path / "deep/result" / world.plain / "rank-0/0/w_0").read_text() == "model"
    assert person.runs(*words, "--prefix=/", "--download_dir=all").code == 0
    assert (tmp_path / "all/data/label.txt").read_text() == "cat\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "deep", "output"]


def test_logs_of_a_finished_job(world: World) -> None:
    person = world.person
    assert person.runs("logs", world.plain).out == LOG
    assert person.types("logs", world.plain, "-n", "2").out == "2\n3\n"
    assert person.types("logs", world.plain, "-n1").out == "3\n"
    assert person.types("logs", world.plain, "-n", "0").out == ""
    assert person.types("logs", world.plain, "--lines=99").out == LOG
    assert person.types("logs", world.plain, "-f", "-w", "trainer-0").out == LOG
    assert person.types("logs", world.plain, "--attempt=1").out == LOG
    assert person.types("logs", world.plain, "--json").json == {
        "job_id": world.plain, "worker": "trainer-0", "log": LOG,
    }  # fmt: skip


def test_logs_of_a_running_job(world: World, gate: Path) -> None:
    person = world.person
    job_id = person.submits(f"seq 5; {waiting(gate)}; printf end")
    until(lambda: person.types("logs", job_id).out == "1\n2\n3\n4\n5\n")
    assert person.types("logs", job_id, "-n", "2").out == "4\n5\n"
    with person.starts("logs", "-f", "-n", "1", job_id) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"5\n"
        gate.touch()
        out, err = follower.communicate(timeout=WAIT)
    assert (follower.returncode, out, err) == (0, b"end", b"")


def test_a_log_is_copied_byte_for_byte(world: World) -> None:
    job_id = world.person.submits(r"printf '\377\000\r\n\033[1m'; printf x")
    world.person.waits_for(job_id)
    with world.person.starts("logs", job_id) as process:
        out, _ = process.communicate(timeout=WAIT)
    assert out == b"\xff\x00\r\n\x1b[1mx"


def test_list_jobs_filters(world: World, gate: Path) -> None:
    person = world.person
    lives = person.submits(waiting(gate), "--job_name=狗", "--cpu=0.1")
    ended = person.submits("exit 3", "--job_name=狗", "--cpu=0.1")
    person.waits_for(lives, "running")
    person.waits_for(ended)

    def ids(*words: str) -> list[str]:
        return [row["job_id"] for row in person.types("list_jobs", *words, "--json").json]

    assert ids("--name=狗") == [ended, lives]
    assert ids("--name=狗", "--state=running") == [lives]
    assert ids("--state=failed", "-n", "1") == [ended]
    assert ids("--state=schedule_timeout") == ids("--state=schedule timeout") == []
    assert ids("--name=nobody") == []
    assert len(ids("--all")) == person.stored()[0]
    limited = person.runs("list_jobs", "--limit=2")
    assert limited.err == ""
    first, second = limited.out.splitlines()
    columns = first.split("\t")
    assert (columns[0], columns[1], columns[2], columns[6]) == (ended, "failed", "cpu", "狗")
    assert second.startswith(f"{lives}\trunning\t")


@pytest.mark.parametrize(
    ("start_cmd", "code", "state"), [("echo fine", 0, "success"), ("echo bad; exit 7", 1, "failed")]
)
def test_watching_ends_with_the_job(world: World, start_cmd: str, code: int, state: str) -> None:
    person = world.person
    words = ("submit_job", "--files=plsc", f"--start_cmd={start_cmd}", "--watch_mode=1")
    done = person.runs(*words)
    assert done.code == code
    first, *log = done.out.splitlines()
    assert log == [start_cmd.split()[1].rstrip(";")]
    job_id = first.removeprefix("job_id: ")
    assert re.search(f"(?m)^{job_id}: {state}", done.err)
    as_json = person.runs(*words, "--json")
    assert as_json.code == code
    assert as_json.json["job_id"] != job_id
    assert log[0] in as_json.err.splitlines()


def test_a_failure_is_told_in_words(world: World) -> None:
    words = (
        "submit_job", "--files=plsc", "--watch_mode=1", "--job_type=cpu",
        "--start_cmd=echo the reason >&2; exit 7",
    )  # fmt: skip
    done = world.person.runs(*words)
    job_id = done.out.splitlines()[0].removeprefix("job_id: ")
    told = done.err.splitlines()
    assert f"{job_id}: failed: trainer-0 exited with code 7" in told
    assert f"the whole log: paddlecloud logs {job_id}" in told
    assert told[-2:] == ["last lines of trainer-0:", "  the reason"]
    chinese = world.person.runs(*words, PADDLECLOUD_LANG="zh")
    assert "以退出码 7 结束" in chinese.err
    assert chinese.code == 1
    assert (
        "error_msg: trainer-0 以退出码 7 结束\n"
        in world.person.runs("query_job", job_id, PADDLECLOUD_LANG="zh").out
    )


def test_ctrl_c_leaves_the_job_alone(world: World, gate: Path) -> None:
    person = world.person
    start = f"echo begun; {waiting(gate)}; echo over"
    words = ("submit_job", "--files=plsc", f"--start_cmd={start}", "--watch_mode=1", "--cpu=0.1")
    with person.starts(*words) as watcher:
        assert watcher.stdout is not None
        job_id = watcher.stdout.readline().decode().removeprefix("job_id: ").strip()
        assert watcher.stdout.readline() == b"begun\n"
        watcher.send_signal(signal.SIGINT)
        out, err = watcher.communicate(timeout=WAIT)
    assert (watcher.returncode, out) == (130, b"")
    last = err.decode().splitlines()[-1]
    assert last == (
        f"interrupted, but {job_id} continues; follow it: paddlecloud logs -f {job_id}; "
        f"end it: paddlecloud kill_job {job_id}"
    )
    person.waits_for(job_id, "running")
    gate.touch()
    assert person.types("logs", "-f", job_id).out == "begun\nover\n"


def test_a_reader_that_goes_away_is_no_mistake(world: World) -> None:
    person = world.person
    job_id = person.submits("seq 200000")
    person.waits_for(job_id)
    program = shlex.quote(str(Path(sys.executable).with_name("paddlecloud")))
    for words in (f"logs {job_id}", f"logs -f {job_id}", "list_jobs --all"):
        done = subprocess.run(
            ["bash", "-c", f"{program} {words} | head -1; exit ${{PIPESTATUS[0]}}"],
            capture_output=True, text=True, cwd=person.here, env=person.environ(), timeout=WAIT,
        )  # fmt: skip
        assert done.stdout.count("\n") == 1
        assert done.stderr == ""
        assert done.returncode in (0, 141)


def test_everything_speaks_json(world: World, tmp_path: Path) -> None:
    person = world.person
    doctor = person.runs("doctor", "--json").json
    assert doctor["ok"] is True
    assert doctor["broken"] is None
    assert {check["name"] for check in doctor["checks"]} >= {"configuration", "server", "job"}
    kept = person.types("admin", "gc", "--json").json
    assert kept == {"jobs": 0, "bytes": 0}
    assert person.types("version", "--json").json["version"] == __version__
    assert person.types("--version").out.strip() == f"paddlecloud {__version__}"
    rows = person.types("config", "show", "--json").json
    assert {row["name"] for row in rows} >= {"home", "lang", "main.ak", "openapi.host"}
    script = person.types("completion", "bash", "--json").json
    assert script["shell"] == "bash"
    target = tmp_path / "result"
    words = ("get_files", world.plain, "--download=1", f"--download_dir={target}", "--json")
    assert len(person.types(*words).json["files"]) == 4
    job_id = person.submits("sleep 60")
    assert person.types("kill_job", job_id, "--json").json["kill_flag"] == 1
    assert person.waits_for(job_id)["job_status"] == "killed"
    assert json.loads(person.types("list_jobs", "--json", "--state=killed").out)
    assert person.types("delete_job", job_id, "--json").json["job_id"] == job_id
    assert person.types("query_job", job_id).code == 1
    kept = person.home / "agent" / "replicas"
    until(lambda: not list(kept.glob(f"{job_id}*")))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_everything_fits_a_terminal_of_eighty_columns(world: World, lang: str) -> None:
    person = world.person
    name = "a-rather-long-name-for-a-job"
    failed = person.submits("echo oh >&2; exit 3", f"--job_name={name}")
    person.waits_for(failed)
    for words in (
        ("list_jobs",), ("list_jobs", "--name=zzz"), ("admin", "job", "list"), ("token", "list"),
        ("admin", "pool", "list"), ("admin", "quota", "plans"), ("sever", "start"),
        ("config", "show", "--origin"), ("help", "all"), ("submit_job", "--help"),
    ):  # fmt: skip
        shown = on_terminal(person, *words, PADDLECLOUD_LANG=lang)
        wide = [line for line in shown if columns_of(line) > 80]
        # A path is not broken: it could not be copied.
        assert [line for line in wide if str(person.home) not in line] == [], words
        if words == ("list_jobs",):
            assert shown[1].startswith(failed[:12] + " ")
            assert failed not in "".join(shown)
            state, exited = ("失败（failed）", "退出码 3") if lang == "zh" else ("failed", "code 3")
            assert state in shown[1] and exited in shown[2] + shown[3]
            assert re.search(r"\d:\d\d:\d\d", shown[1])
    assert person.types("list_jobs", "-n", "1").out.startswith(f"{failed}\tfailed\tcpu\t")


def on_terminal(person: Person, *words: str, **more: str) -> list[str]:
    """What the command shows on a real terminal of 80 columns, line by line."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        process = subprocess.Popen(
            [PROGRAM, *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=person.here,
            env=person.environ({"NO_COLOR": "1", "TERM": "xterm", **more}),
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal ends with its last process
            while part := os.read(ours, 65536):
                shown += part
        process.wait(WAIT)
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n").splitlines()


def columns_of(line: str) -> int:
    return len(line) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)


def test_help_in_both_languages(world: World) -> None:
    person = world.person
    english, chinese = (
        person.runs("help", "all", PADDLECLOUD_LANG=lang).out for lang in ("en", "zh")
    )
    for word in ("submit_job", "get_files", "server start", "doctor", "completion"):
        assert word in english
        assert word in chinese
    assert not CHINESE.search(english)
    assert "提交一个训练任务" in chinese
    page = person.runs("submit_job", "--help", PADDLECLOUD_LANG="zh").out
    assert "--wall_time" in page
    assert CHINESE.search(page)
    assert person.types("help", "submit_job").out == person.types("submit_job", "-h").out


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("paddlecloud sub", ["submit_job"]),
        ("paddlecloud server st", ["start", "stop", "status"]),
        ("paddlecloud submit_job --wa", ["--wall_time=", "--watch_mode="]),
        ("paddlecloud submit_job --job_type = c", ["cpu"]),
        ("paddlecloud logs --fo", ["--follow"]),
    ],
)
def test_a_real_shell_completes(world: World, line: str, wanted: list[str]) -> None:
    words = line.split(" ")
    script = (
        f'eval "$(paddlecloud completion bash)"; COMP_WORDS=({" ".join(words)}); '
        f'COMP_CWORD={len(words) - 1}; _paddlecloud; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    environ = world.person.environ()
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=environ, timeout=WAIT
    )
    assert (done.stderr, sorted(done.stdout.split())) == ("", sorted(wanted))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_scripts_are_sound(world: World, shell: str) -> None:
    script = world.person.types("completion", shell).out
    done = subprocess.run(
        ["bash", "-n"], input=script, capture_output=True, text=True, timeout=WAIT
    )
    assert (done.returncode, done.stderr) == (0, "")
