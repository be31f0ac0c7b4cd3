"""`doctor` against a scripted server: the first broken link has its name."""

from __future__ import annotations

import json
import os
import socket
import threading

import pytest

from paddlecloud.cli.main import main
from paddlecloud.cli.system import doctor
from tests.ports import free_port
from tests.unit.cli.scripted import JOB, VIEW, Captured, submits
from tests.unit.client.fake_server import AK, Answer, FakeServer, error, ok


def test_doctor_names_the_first_broken_link(server: FakeServer, capsys: Captured) -> None:
    server.routes["GET /api/v1/whoami"] = [
        ok({"user_id": "me", "ak": AK, "time": "2020-01-01T00:00:00Z"})
    ]
    checks = [
        {"name": "database", "ok": True, "detail": "3 jobs"},
        {"name": "store", "ok": False, "detail": "no space left"},
        {"name": "agent", "ok": True, "detail": ""},
    ]
    server.routes["GET /api/v1/doctor"] = [ok({"checks": checks})]
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "configuration", "server", "signature", "database", "store",
    ]  # fmt: skip
    assert "clock differs" in lines[2]
    assert "failed" in lines[4] and "no space left" in lines[4]
    assert "first failed check: store" in captured.err
    assert main(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["broken"]) == (False, "store")


def test_doctor_names_a_server_that_cannot_check_itself(
    server: FakeServer, capsys: Captured
) -> None:
    server.routes["GET /api/v1/whoami"] = [
        ok({"user_id": "me", "ak": AK, "time": "2020-01-01T00:00:00Z"})
    ]
    server.routes["GET /api/v1/doctor"] = [error(500, "Internal", "internal", "a mistake")]
    assert main(["doctor", "--json"]) == 1
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["ok"], answer["broken"], captured.err) == (False, "report", "")
    assert answer["checks"][-1]["detail"] == "a mistake"
    assert main(["doctor"]) == 1
    assert "first failed check: server self-checks" in capsys.readouterr().err


def test_doctor_gives_a_new_server_time_to_hear_from_its_agent(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    server.routes["GET /api/v1/whoami"] = [
        ok({"user_id": "me", "ak": AK, "time": "2020-01-01T00:00:00Z"})
    ]
    silent = {"checks": [{"name": "agent", "ok": False, "detail": "none was ever seen"}]}
    heard = {"checks": [{"name": "agent", "ok": True, "detail": "local"}]}
    submits(server, {**VIEW, "job_status": "success", "version": 4})
    server.routes[f"GET {JOB}/logs"] = [Answer(b"ok\n")]
    server.routes["GET /api/v1/doctor"] = [ok(silent), ok(heard)]
    assert main(["doctor", "--json"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(doctor, "AGENT_SECONDS", 0.0)
    server.routes["GET /api/v1/doctor"] = [ok(silent)]
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"] == "agent"


def test_doctor_names_the_server_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("PADDLECLOUD_HOST", f"http://127.0.0.1:{free_port()}")
    assert main(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["broken"] == "server", "without keys, too: nobody could use them there"
    assert "cannot connect" in answer["checks"][-1]["detail"]


@pytest.mark.parametrize(
    "said", [b"220 mail.example ESMTP\r\n", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"]
)
def test_doctor_names_a_server_of_another_kind(
    said: bytes, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("PADDLECLOUD_HOST", f"http://127.0.0.1:{listening.getsockname()[1]}")
        other = threading.Thread(target=answers_once, args=(listening, said))
        other.start()
        assert main(["doctor"]) == 1
        other.join()
    captured = capsys.readouterr()
    assert "this is not a PaddleCloud server" in captured.out
    assert "first failed check: server" in captured.err


def test_doctor_deletes_its_own_job_and_no_other(server: FakeServer, capsys: Captured) -> None:
    server.routes["GET /api/v1/whoami"] = [
        ok({"user_id": "me", "ak": AK, "time": "2020-01-01T00:00:00Z"})
    ]
    server.routes["GET /api/v1/doctor"] = [ok({"checks": []})]
    server.routes[f"POST {JOB}/delete"] = [ok({"bytes": 3})]
    submits(server, {**VIEW, "job_status": "success", "version": 4})
    server.routes[f"GET {JOB}/logs"] = [Answer(b"ok\n")]
    assert main(["doctor"]) == 0
    assert deletions(server) == [f"{JOB}/delete"]
    server.routes[f"GET {JOB}"] = [ok({**VIEW, "job_status": "failed", "version": 4})]
    assert main(["doctor"]) == 1, "a failed one goes too"
    assert deletions(server) == [f"{JOB}/delete"] * 2
    server.routes[f"POST {JOB}/delete"] = [error(409, "Conflict", "job_not_over", "it runs")]
    capsys.readouterr()
    assert main(["doctor"]) == 1
    assert f"could not be deleted: it runs; delete it: paddlecloud delete_job {VIEW['job_id']}" in (
        capsys.readouterr().err
    )


def test_doctor_ends_a_job_that_does_not_end(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(doctor, "JOB_SECONDS", 0.0)
    server.routes["GET /api/v1/whoami"] = [
        ok({"user_id": "me", "ak": AK, "time": "2020-01-01T00:00:00Z"})
    ]
    server.routes["GET /api/v1/doctor"] = [ok({"checks": []})]
    queued = {**VIEW, "job_status": "queue", "queue_reason": "no free CPU", "version": 2}
    submits(server, queued)
    killed = ok({**VIEW, "job_status": "killed", "version": 5})
    server.routes[f"GET {JOB}"] = [ok(queued), ok(queued), ok(queued), killed]
    server.routes[f"POST {JOB}/kill"] = [killed]
    server.routes[f"POST {JOB}/delete"] = [ok({"bytes": 3})]
    assert main(["doctor"]) == 1
    assert ": queue; no free CPU" in capsys.readouterr().out
    assert deletions(server) == [f"{JOB}/delete"]


def deletions(server: FakeServer) -> list[str]:
    return [seen.path for seen in server.seen if seen.path.endswith("/delete")]


def answers_once(listening: socket.socket, said: bytes) -> None:
    """A program that is no server of ours: it says its sentence and hangs up."""
    caller, _ = listening.accept()
    with caller:
        caller.sendall(said)
        caller.recv(4096)


def test_doctor_finds_wrong_keys(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    server.routes["GET /api/v1/whoami"] = [error(401, "Unauthenticated", "auth_signature", "no")]
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"] == "signature"
    monkeypatch.setenv("PADDLECLOUD_CONFIG", os.devnull + "/none")
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"] == "configuration"


def test_a_tiny_job_with_the_wrong_log_is_found(server: FakeServer, capsys: Captured) -> None:
    server.routes["GET /api/v1/whoami"] = [
        ok({"user_id": "me", "ak": AK, "time": "2020-01-01T00:00:00Z"})
    ]
    server.routes["GET /api/v1/doctor"] = [ok({"checks": []})]
    submits(server, {**VIEW, "job_status": "success", "version": 4})
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"] == "job"
    server.routes[f"GET {JOB}/logs"] = [Answer(b"ok\n")]
    assert main(["doctor", "--json"]) == 0
    server.routes[f"GET {JOB}"] = [ok({**VIEW, "job_status": "failed", "version": 4})]
    assert main(["doctor"]) == 1
    assert ": failed" in capsys.readouterr().out
