"""The whole command against a scripted server: what is printed where, and the exit code."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddlecloud.cli import main as entry
from paddlecloud.cli.main import main
from paddlecloud.cli.output import Output
from paddlecloud.client import submit
from tests.unit.cli.scripted import ID, JOB, PLAIN, VIEW, Captured, run_program, submits
from tests.unit.client.fake_server import Answer, FakeServer, Seen, error, ok


def test_query_job_prints_the_seventeen_lines(server: FakeServer, capsys: Captured) -> None:
    server.routes[f"GET {JOB}"] = [ok(VIEW)]
    assert main(["query_job", f"--job_id={ID}"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (PLAIN, "")
    assert main(["query_job", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == VIEW
    assert main(["--json", "query_job", ID]) == 0
    assert json.loads(capsys.readouterr().out) == VIEW


def test_submit_job_prints_the_id_and_nothing_else(
    server: FakeServer, directory: Path, capsys: Captured
) -> None:
    submits(server)
    assert main(["submit_job", f"--files={directory}", "--start_cmd=sh run.sh"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"job_id: {ID}\n"
    found = "files: 1 (8 B); the largest: run.sh (8 B)\n"
    assert captured.err == f"{found}runs as cpu\n"
    assert main(["submit_job", "--files", str(directory), "--start_cmd", "x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job_id"] == ID


def test_the_flags_of_a_submit_arrive(
    server: FakeServer, directory: Path, capsys: Captured
) -> None:
    submits(server)
    words = ["--job_name=训练", "--cpu=2", "--memory=1Gi", "--env", "A=1", "--env", "B=x=y"]
    more = ["--max_retries", "2", f"--file={directory}", "--start_cmd=true"]
    assert main(["submit_job", *words, *more]) == 0
    spec = server.seen[0].json["spec"]
    assert (spec["job_name"], spec["cpu"], spec["memory"]) == ("训练", 2.0, 2**30)
    assert spec["env"] == {"A": "1", "B": "x=y"}
    assert spec["max_retries"] == 2


def watches(server: FakeServer, directory: Path, log: bytes) -> int:
    waits = {"job_status": "queue", "queue_reason": "no room: 1 CPU", "attempts": 0}
    waiting = {**VIEW, **waits, "version": 4}
    ended = {**VIEW, "job_status": "success", "version": 9}
    submits(server, waiting, VIEW | {"version": 5}, ended)
    server.routes[f"GET {JOB}/logs"] = [Answer(log, 200, {"x-log-offset": "0"})]
    return main(["submit_job", f"--files={directory}", "--start_cmd=x", "--watch_mode=1"])


def test_watching_tells_states_to_the_end(
    server: FakeServer, directory: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert watches(server, directory, b"") == 0
    told = capfdbinary.readouterr().err.decode()
    assert "queue: no room: 1 CPU" in told
    assert "running" in told
    assert f"{ID}: success" in told


def test_watching_says_that_a_job_runs_before_it_speaks(
    server: FakeServer, directory: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert watches(server, directory, b"one\n\xff two\n") == 0
    captured = capfdbinary.readouterr()
    assert captured.out == f"job_id: {ID}\n".encode() + b"one\n\xff two\n"
    told = captured.err.decode()
    assert told.count(" running\n") == 1
    assert "queue" not in told.partition(" running\n")[2]


def test_watching_is_chinese_on_a_chinese_terminal(
    server: FakeServer, directory: Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLECLOUD_LANG", "zh")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("paddlecloud.cli.output._is_terminal", lambda stream: stream is sys.stderr)
    assert watches(server, directory, b"") == 0
    told = capfd.readouterr().err
    assert " 排队中（queue）：no room: 1 CPU\n" in told
    assert " 运行中（running）\n" in told
    assert f"{ID[:12]}：成功（success）\n" in told


@pytest.mark.parametrize("state", ["failed", "timeout", "killed", "schedule timeout"])
def test_any_other_end_is_exit_code_one(
    server: FakeServer, directory: Path, capsys: Captured, state: str
) -> None:
    failure = {
        "message": "trainer-0 exited with code 3",
        "advice": "look at line 7",
        "worker": "trainer-0",
        "last_lines": ["Traceback", "KeyError: 'x'"],
    }
    submits(server, {**VIEW, "job_status": state, "version": 9, "failure": failure})
    words = ["submit_job", f"--files={directory}", "--start_cmd=x", "--watch_mode=1"]
    assert main(words) == 1
    told = capsys.readouterr().err
    assert f"{ID}: {state}: trainer-0 exited with code 3\nlook at line 7\n" in told
    assert "  KeyError: 'x'\n" in told


def test_what_holds_a_job_up_is_told_on_a_terminal(
    server: FakeServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "trainer-0 waits for its files"
    view = {**VIEW, "queue_reason": waits, "advice": [waits, "outputs wait (no space)"]}
    server.routes[f"GET {JOB}"] = [ok(view), ok(view)]
    assert main(["query_job", ID]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("paddlecloud.cli.output._is_terminal", lambda stream: stream is sys.stderr)
    assert main(["query_job", ID]) == 0
    captured = capsys.readouterr()
    assert captured.err == "outputs wait (no space)\n", "and nothing twice"
    assert f"queue_reason: {waits}\n" in captured.out


def test_watching_with_json_keeps_stdout_for_the_answer(
    server: FakeServer, directory: Path, capfd: Captured
) -> None:
    submits(server, {**VIEW, "job_status": "success", "version": 9})
    words = ["submit_job", f"--files={directory}", "--start_cmd=x", "--watch_mode=1", "--json"]
    assert main(words) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["job_id"] == ID
    assert "one\n" in captured.err


def test_ctrl_c_leaves_the_job_and_says_so(server: FakeServer, directory: Path) -> None:
    submits(server, VIEW)
    server.routes[f"GET {JOB}/logs"] = [
        Answer(b"one\n", 200, {"x-log-offset": "0"}, drop=None, hold=True)
    ]
    program = run_program("submit_job", f"--files={directory}", "--start_cmd=x", "--watch_mode=1")
    assert program.stdout is not None
    assert program.stdout.readline() == f"job_id: {ID}\n".encode()
    assert program.stdout.readline() == b"one\n"
    program.send_signal(signal.SIGINT)
    _, told = program.communicate(timeout=30)
    assert program.returncode == 130
    assert told.decode().splitlines()[-1].startswith(f"interrupted, but {ID} continues;")
    assert b"Traceback" not in told


def test_a_reader_that_went_away_is_no_error(server: FakeServer) -> None:
    rows = [{**VIEW, "number": n} for n in range(900, 0, -1)]
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": rows, "next": None})]
    program = run_program("list_jobs", "--all")
    assert program.stdout is not None and program.stderr is not None
    program.stdout.readline()
    program.stdout.close()
    told = program.stderr.read()
    program.stderr.close()
    assert (program.wait(30), told) == (141, b"")


def test_list_jobs_in_a_pipe_and_as_json(server: FakeServer, capsys: Captured) -> None:
    def page(seen: Seen) -> Answer:
        rows = [{**VIEW, "number": n} for n in range(3, 0, -1)][: int(seen.query["limit"])]
        return ok({"jobs": rows, "next": None})

    server.routes["GET /api/v1/jobs"] = page
    assert main(["list_jobs", "--state=schedule_timeout", "--name=a"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 3
    assert captured.out.startswith(f"{ID}\trunning\tcpu\t2020-05-17 18:15:28\t")
    assert server.seen[-1].query["state"] == "schedule%20timeout"
    assert main(["list_jobs", "--limit=2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert main(["list_jobs", "--limit=2"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["list_jobs", "--limit=0"]) == 2


def test_get_files_lists_and_downloads(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"output/{ID}/log/trainer-0.log"
    rows = [
        {"path": f"output/{ID}/", "size": 0, "time": "2020-05-17T10:15:39Z"},
        {"path": name, "size": 3, "time": "2020-05-17T10:16:09Z"},
    ]
    server.routes[f"GET {JOB}/files"] = [ok({"files": rows})]
    digest = hashlib.sha256(b"hi\n").digest()
    server.routes[f"GET {JOB}/files/{name}"] = [Answer(b"hi\n" + digest)]
    assert main(["get_fils", f"--job_id={ID}"]) == 0
    want = f"output/{ID}/\t0\t2020-05-17T10:15:39Z\n{name}\t3\t2020-05-17T10:16:09Z\n"
    assert capsys.readouterr().out == want
    assert main(["get_files", ID, f"--prefix=output/{ID}/log", "--download=1"]) == 0
    assert (tmp_path / "output" / ID / "log" / "trainer-0.log").read_bytes() == b"hi\n"
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"1 file, 3 B, in output/{ID}\n")
    assert main(["get_files", ID, "--download=1"]) == 2
    assert f"output/{ID}" in capsys.readouterr().err
    asked = len(server.seen)
    assert main(["get_files", ID, "--download=1", "--download_dir=output"]) == 2
    assert len(server.seen) == asked, "nothing is asked when the directory is in the way"
    server.routes[f"GET {JOB}/files"] = [ok({"files": []})]
    assert main(["get_files", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job_id": ID, "files": []}


def test_logs_are_the_bytes_as_they_are(
    server: FakeServer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = bytes(range(256)) * 3
    server.routes[f"GET {JOB}"] = [ok(VIEW)]
    server.routes[f"GET {JOB}/logs"] = [Answer(data, 200, {"x-log-offset": "0"})]
    assert main(["logs", ID, "-w", "trainer-1", "-n3", "-f"]) == 0
    assert capfdbinary.readouterr().out == data
    want = {"worker": "trainer-1", "tail": "3", "follow": "1"}
    assert [seen.query for seen in server.seen][:2] == [{"diff": "0"}, want]
    assert main(["logs", ID, "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["worker"] == "trainer-0"


def test_delete(server: FakeServer, capsys: Captured) -> None:
    server.routes[f"POST {JOB}/delete"] = [ok({"job_id": ID, "bytes": 2048})]
    assert main(["delete_job", ID]) == 0
    assert capsys.readouterr().err == f"{ID} was deleted, 2.0 KiB freed\n"
    assert main(["delete_job", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job_id": ID, "bytes": 2048}
    assert main(["delete_job"]) == 2


@pytest.mark.parametrize(
    ("prefix", "says"),
    [("", False), ("/", False), (f"output/{ID}/rank-1", False), ("log", True), ("rank-0/", True)],
)
def test_who_asks_for_files_by_another_path_hears_how_paths_begin(
    server: FakeServer, capsys: Captured, prefix: str, says: bool
) -> None:
    server.routes[f"GET {JOB}/files"] = [ok({"files": [], "next": None})]
    server.routes[f"GET {JOB}"] = [ok({**VIEW, "job_status": "success"})]
    assert main(["get_files", ID, *([f"--prefix={prefix}"] if prefix else [])]) == 0
    told = capsys.readouterr().err
    assert told.startswith("no files under")
    assert (f"are under output/{ID}/" in told) is says


def test_kill_and_gc(server: FakeServer, capsys: Captured) -> None:
    server.routes[f"POST {JOB}/kill"] = [ok({**VIEW, "job_status": "killing"})]
    server.routes["POST /api/v1/admin/gc"] = [ok({"jobs": 2, "bytes": 2048})]
    assert main(["kill_job", ID]) == 0
    assert capsys.readouterr().err.startswith(f"{ID}: killing;")
    assert main(["admin", "gc"]) == 0
    assert capsys.readouterr().out == "deleted 2 jobs, 2.0 KiB\n"
    server.routes["POST /api/v1/admin/gc"] = [ok({"jobs": 1, "bytes": 0})]
    assert main(["admin", "gc"]) == 0
    assert capsys.readouterr().out == "deleted 1 job, 0 B\n"
    ended = error(409, "Conflict", "job_is_final", "it has ended")
    server.routes[f"POST {JOB}/kill"] = [ended]
    assert main(["kill_job", ID]) == 1
    assert capsys.readouterr().err == "paddlecloud: it has ended\n"


def test_several_jobs_are_killed_and_each_is_reported(server: FakeServer, capsys: Captured) -> None:
    other = "job-" + "9" * 32
    killed = {**VIEW, "job_id": other, "job_status": "killed"}
    server.routes[f"POST {JOB}/kill"] = [error(409, "Conflict", "job_is_final", "it has ended")]
    server.routes[f"POST /api/v1/jobs/{other}/kill"] = [ok(killed)]
    server.routes["GET /api/v1/jobs/zz"] = [error(404, "NotFound", "job_reference_unknown", "no")]
    assert main(["kill_job", ID, "zz", f"--job_id={other}"]) == 1
    captured = capsys.readouterr()
    want = ["paddlecloud: it has ended", "paddlecloud: no", f"{other}: killed"]
    assert (captured.out, captured.err.splitlines()) == ("", want)
    assert main(["kill_job", ID, other, "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["job_id"], first["error"]["code"]) == (ID, "job_is_final")
    assert second == killed
    assert main(["kill_job", other, other]) == 0
    server.routes[f"POST {JOB}/kill"] = [error(401, "Unauthenticated", "auth_unknown_key", "who?")]
    asked = len(server.seen)
    assert main(["kill_job", ID, other]) == 1
    assert len(server.seen) == asked + 1, "what holds for all is not asked again"


def test_an_error_under_json_is_an_object_on_stderr(server: FakeServer, capsys: Captured) -> None:
    server.routes[f"GET {JOB}"] = [error(404, "NotFound", "job_unknown", "no such job", id=ID)]
    assert main(["query_job", ID, "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    wire = json.loads(captured.err)["error"]
    assert (wire["kind"], wire["code"], wire["message"]) == (
        "NotFound", "job_unknown", "no such job",
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["server"],
        ["query_job"],
        ["query_job", "a/b"],
        ["kill_job"],
        ["kill_job", ID, ""],
        ["query_job", "--job=1"],
        ["query_job", ID, ID],
        ["kill_job", "--job_id="],
        ["get_files", ID, "--download=yes"],
        ["logs", ID, "-n", "x"],
        ["list_jobs", "--state=gone"],
        ["submit_job"],
        ["submit_job", "--start_cmd=x"],
        ["submit_job", "--files=."],
        ["submit_job", "--files=/nonexistent", "--start_cmd=x"],
        ["submit_job", "--files=.", "--start_cmd=x", "--watch_mode=2"],
        ["submit_job", "--files=.", "--start_cmd=x", "--wall_time=30"],
        ["submit_job", "--files=.", "--start_cmd=x", "extra"],
        ["completion"],
        ["completion", "tcsh"],
        ["--config"],
        ["query_job", ID, "--config=/nonexistent"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_sentence_and_nothing_is_sent(
    server: FakeServer, words: list[str], capsys: Captured
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    if words:
        assert captured.err.startswith("paddlecloud: ")
        assert captured.err.count("\n") == 1
    assert server.seen == []


@pytest.mark.parametrize(
    "locale",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "gbk"},
        {"PYTHONIOENCODING": "utf-8"},
    ],
    ids=["ascii", "C", "gbk", "utf-8"],
)
def test_json_is_the_same_value_in_every_locale(server: FakeServer, locale: dict[str, str]) -> None:
    view = {**VIEW, "job_name": "训练 😀 \udc80"}
    server.routes[f"GET {JOB}"] = [ok(view), error(404, "NotFound", "job_unknown", "没有 😀")]
    environ = {**os.environ, **locale}
    out, _ = run_program("query_job", ID, "--json", env=environ).communicate(timeout=30)
    assert json.loads(out.decode()) == view
    _, told = run_program("query_job", ID, "--json", env=environ).communicate(timeout=30)
    assert json.loads(told.decode())["error"]["message"] == "没有 😀"


def test_json_stays_readable_where_it_can(server: FakeServer) -> None:
    server.routes[f"GET {JOB}"] = [ok({**VIEW, "job_name": "训练"})]
    environ = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    out, _ = run_program("query_job", ID, "--json", env=environ).communicate(timeout=30)
    assert '"训练"' in out.decode()


def test_help_and_version_need_nothing(capsys: Captured) -> None:
    for words in (["--help"], ["help"], ["query_job", "--help"], ["help", "server", "stop"]):
        assert main(words) == 0
        assert "usage: paddlecloud" in capsys.readouterr().out
    for words in (["help", "all"], ["help", "--all"]):
        assert main(words) == 0
        assert "admin user disable" in capsys.readouterr().out
    for words in (["server", "--help"], ["server", "-h"], ["help", "server"]):
        assert main(words) == 0
        text = capsys.readouterr().out
        assert "server status" in text and "submit_job" not in text
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("paddlecloud ")
    assert main(["version", "--json"]) == 0
    assert "version" in json.loads(capsys.readouterr().out)


def test_the_language_is_the_person_s(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("PADDLECLOUD_LANG", "zh")
    assert main(["--help"]) == 0
    assert "用法" in capsys.readouterr().out
    assert main(["qury_job"]) == 2
    assert "是否想用 query_job" in capsys.readouterr().err


def test_the_configuration_is_shown_without_its_secrets(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "client.conf"
    path.write_text("[main]\nak=ak-1\nsk=very-secret\nunknown=1\n")
    path.chmod(0o600)
    assert main(["config", "show", "--origin", "--config", str(path)]) == 0
    captured = capsys.readouterr()
    assert f"main.ak\tak-1\t{path}:2\n" in captured.out
    assert "very-secret" not in captured.out + captured.err
    assert "unknown" in captured.err
    assert main(["config", "show", f"--config={path}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name": "main.debug", "value": "0", "origin": "default"} in rows
    assert main(["config", "show", f"--config={path}"]) == 0
    assert "main.ak: ak-1\n" in capsys.readouterr().out


def test_a_mistake_of_ours_is_a_sentence_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("oh no")

    monkeypatch.setattr(entry, "run", broken)
    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path))
    assert main(["query_job", ID]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "ZeroDivisionError: oh no" in told
    saved = (tmp_path / "cache" / "last-error.txt").read_text()
    assert "Traceback" in saved and "oh no" in saved
    monkeypatch.setenv("PADDLECLOUD_DEBUG", "1")
    assert main(["query_job", ID]) == 1
    assert "Traceback" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("PADDLECLOUD_DEBUG")
    assert main(["query_job", ID]) == 1
    assert "PADDLECLOUD_DEBUG=1" in capsys.readouterr().err


def test_debug_shows_the_calls(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    server.routes[f"GET {JOB}"] = [ok(VIEW)]
    monkeypatch.setenv("PADDLECLOUD_DEBUG", "1")
    assert main(["query_job", ID]) == 0
    assert f"GET {JOB}?diff=0 200" in capsys.readouterr().err


def test_query_job_imports_nothing_heavy(server: FakeServer) -> None:
    """Each of these costs 10 ms or more; four times a bare Python is all that a query may take."""
    server.routes[f"GET {JOB}"] = [ok(VIEW)]
    program = [sys.executable, "-X", "importtime", "-m", "paddlecloud", "query_job", ID]
    done = subprocess.run(program, capture_output=True, check=True, timeout=60)
    assert done.stdout.decode() == PLAIN
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "paddlecloud.client.sdk" in loaded
    heavy = {
        "argparse", "asyncio", "dataclasses", "http.client", "logging", "pathlib",
        "ssl", "subprocess", "tempfile", "threading", "traceback", "typing", "urllib.parse",
        "paddlecloud.client.download.engine", "paddlecloud.model.jobs.params",
        "paddlecloud.model.jobs.states",
    }  # fmt: skip
    assert loaded & heavy == set()


@pytest.mark.parametrize("notes", [(), ("files_found",)])
def test_whoever_interrupts_when_the_job_is_there_is_told_its_id(
    notes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def interrupted(
        *_: object, note: Callable[..., None], accepted: Callable[..., None], **__: object
    ) -> None:
        accepted(VIEW)
        for code in notes:
            note(code, count=1, size="1 B", largest="a")
        raise KeyboardInterrupt

    monkeypatch.setattr(submit, "submit", interrupted)
    assert main(["submit_job", "--files=.", "--start_cmd=true"]) == 130
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(notes) + 1
    assert told[-1].startswith(f"interrupted, but {ID} continues;")


def test_so_it_is_while_the_notes_of_the_server_are_told(
    server: FakeServer, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    submits(server)
    tell = Output.message

    def interrupted(out: Output, text: str) -> None:
        tell(out, text)
        if text == "runs as cpu":
            raise KeyboardInterrupt

    monkeypatch.setattr(Output, "message", interrupted)
    assert main(["submit_job", f"--files={directory}", "--start_cmd=true"]) == 130
    assert f"interrupted, but {ID} continues;" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("notes", "want"),
    [
        ((), "no job was submitted; run the same command again"),
        (("files_read_again",), "no job was submitted; run the same command again"),
        (("upload_kept",), "run the same command again: uploaded data is kept"),
        (("submit_unsure",), "the job may have been accepted"),
    ],
)
def test_whoever_interrupts_a_submit_is_told_once_what_to_do(
    notes: tuple[str, ...],
    want: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    def interrupted(*_: object, note: Callable[..., None], **__: object) -> None:
        for code in notes:
            note(code, path="x")
        raise KeyboardInterrupt

    monkeypatch.setattr(submit, "submit", interrupted)
    assert main(["submit_job", "--files=.", "--start_cmd=true"]) == 130
    *_, advice, last = capsys.readouterr().err.splitlines()
    assert advice.startswith(want)
    assert last == "interrupted"
