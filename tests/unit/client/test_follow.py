"""Following a job across broken connections, silences and attempts; and when not to wait."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client
from paddlecloud.client import _follow as client_follow
from paddlecloud.model.errors import NotFound, Retry, TooMany, Unreachable
from paddlecloud.net import retry
from paddlecloud.net.endpoint import Endpoint
from tests.ports import free_port
from tests.unit.client.fake_server import AK, SK, Answer, FakeServer, Seen, error, ok

ID = "job-" + "0123456789abcdef" * 2
JOB = f"/api/v1/jobs/{ID}"


@pytest.fixture
def nobody() -> Iterator[Client]:
    """A client of a server that is not there."""
    with Client(host=f"http://127.0.0.1:{free_port()}", ak=AK, sk=SK) as made:
        yield made


@pytest.fixture
def mute() -> Iterator[Client]:
    """A client of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Client(host=f"http://127.0.0.1:{port}", ak=AK, sk=SK) as made:
            yield made


def view(state: str, version: int, attempts: int = 1) -> dict[str, Any]:
    return {"job_id": ID, "job_status": state, "version": version, "attempts": attempts}


def log(data: bytes, attempt: int = 1, offset: int = 0, **more: Any) -> Answer:
    headers = {"x-log-offset": str(offset), "x-log-attempt": str(attempt)}
    return Answer(data, 200, headers, **more)


def asked(server: FakeServer) -> list[tuple[str | None, str | None]]:
    """Attempt and offset of every request for the log."""
    found = [seen.query for seen in server.seen if seen.path == f"{JOB}/logs"]
    return [(query.get("attempt"), query.get("offset")) for query in found]


@pytest.mark.parametrize("follow", [False, True])
def test_a_server_that_never_answered_is_not_waited_for(nobody: Client, follow: bool) -> None:
    with pytest.raises(Unreachable) as caught:
        list(nobody.logs(ID, follow=follow))
    assert caught.value.code == "server_unreachable"
    with pytest.raises(Unreachable):
        nobody.wait(ID)


@pytest.mark.parametrize("follow", [False, True])
def test_a_server_that_says_nothing_is_given_up(
    mute: Client, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_follow, "LOG_SILENCE", 0.05)
    with pytest.raises(Unreachable) as caught:
        list(mute.logs(ID, follow=follow))
    assert caught.value.code == "server_timeout"


def test_a_long_silence_of_a_followed_log_is_no_end(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_follow, "LOG_SILENCE", 1.0)  # time enough to answer
    monkeypatch.setattr(client_follow, "GIVE_UP_AFTER", 0.0)
    server.routes[f"GET {JOB}/logs"] = [
        log(b"one\n", hold=True),
        log(b"", offset=4, hold=True),
        log(b"two\n", offset=4),
    ]
    server.routes[f"GET {JOB}"] = [ok(view("success", 5))]
    assert b"".join(client.logs(ID, follow=True)) == b"one\ntwo\n"
    assert asked(server) == [(None, None), ("1", "4"), ("1", "4")]


def test_the_log_goes_on_with_the_next_attempt(server: FakeServer, client: Client) -> None:
    """The first breaks, is read to its end, and the second is awaited and read from its start."""
    logs = {1: b"first try\n" * 1000, 2: b"second try\n"}

    def serve(seen: Seen) -> Answer:
        attempt, offset = int(seen.query.get("attempt", 1)), int(seen.query.get("offset", 0))
        cut = 4000 if (attempt, offset) == (1, 0) else None
        return log(logs[attempt][offset:], attempt, offset, drop=cut)

    server.routes[f"GET {JOB}/logs"] = serve
    server.routes[f"GET {JOB}"] = [
        ok(view("schedule", 4)),
        ok(view("running", 6, attempts=2)),
        ok(view("success", 8, attempts=2)),
    ]
    assert b"".join(client.logs(ID, follow=True)) == logs[1] + logs[2]
    assert asked(server) == [(None, None), ("1", "4000"), ("2", "0")]


def test_a_log_that_is_followed_before_the_first_attempt(
    server: FakeServer, client: Client
) -> None:
    """The answer began while the job waited: its bytes are the first attempt's."""
    server.routes[f"GET {JOB}/logs"] = [
        log(b"one\ntwo\n", attempt=0, drop=4),
        log(b"two\n", attempt=1, offset=4),
    ]
    server.routes[f"GET {JOB}"] = [ok(view("failed", 5))]
    assert b"".join(client.logs(ID, follow=True)) == b"one\ntwo\n"
    assert asked(server) == [(None, None), ("1", "4")]


def test_an_empty_answer_before_the_first_attempt_is_no_end(
    server: FakeServer, client: Client
) -> None:
    server.routes[f"GET {JOB}/logs"] = [log(b"", attempt=0), log(b"one\n")]
    server.routes[f"GET {JOB}"] = [ok(view("running", 5)), ok(view("success", 6))]
    assert b"".join(client.logs(ID, follow=True)) == b"one\n"
    assert asked(server) == [(None, None), ("1", "0")]


@pytest.mark.parametrize("how", [{"follow": True, "attempt": 1}, {"tail": 3}, {}])
def test_one_attempt_is_enough_when_no_more_was_asked_for(
    server: FakeServer, client: Client, how: dict[str, Any]
) -> None:
    server.routes[f"GET {JOB}/logs"] = [log(b"one\n")]
    assert b"".join(client.logs(ID, **how)) == b"one\n"
    assert len(server.seen) == 1, "nobody asked whether there are more attempts"


def test_an_absence_is_told_once(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_follow, "REPORT_AFTER", 0.0)
    told: list[tuple[str, dict[str, object]]] = []
    away = [Answer(drop=0)] * 9
    server.routes[f"GET {JOB}"] = [
        ok(view("queue", 1)), *away, ok(view("running", 2)), *away, ok(view("success", 3)),
    ]  # fmt: skip
    note = lambda code, **params: told.append((code, params))  # noqa: E731 - two lines in one test
    with Client(host=server.url, ak=AK, sk=SK, note=note) as client:
        assert [job.version for job in client.changes(ID)] == [1, 2, 3]
    assert [code for code, _ in told] == ["server_awaited"] * 2
    assert "127.0.0.1" in str(told[0][1]["reason"])


def test_a_client_that_was_answered_before_is_patient_from_the_start(
    server: FakeServer, client: Client
) -> None:
    server.routes["GET /api/v1/whoami"] = [ok({"user_id": "me"})]
    client.whoami()
    server.routes[f"GET {JOB}"] = [*[Answer(drop=0)] * 9, ok(view("success", 3))]
    assert client.wait(ID).state == "success"


#: What a server says while its database restarts, and a proxy while the server does.
LATER = [error(503, "Retry", "database_failed", "no database"), Answer(b"<html>", 502)]


def test_a_server_that_cannot_answer_for_the_moment_is_waited_for(
    server: FakeServer, client: Client
) -> None:
    server.routes[f"GET {JOB}"] = [
        ok(view("running", 1)), *LATER, ok(view("running", 2)), *LATER, ok(view("success", 3)),
    ]  # fmt: skip
    assert client.wait(ID).state == "success"


@pytest.mark.parametrize("merge", [False, True])
def test_a_log_goes_on_after_a_server_that_could_not_answer(
    server: FakeServer, client: Client, merge: bool
) -> None:
    frames = [b"trainer-0 4 4\none\n", b"trainer-0 8 4\ntwo\n"] if merge else [b"one\n", b"two\n"]
    server.routes[f"GET {JOB}/logs"] = [
        log(b"".join(frames), drop=len(frames[0])), *LATER, log(frames[1], offset=4),
    ]  # fmt: skip
    server.routes[f"GET {JOB}"] = [*LATER, ok(view("success", 2))]
    want = b"[trainer-0] one\n[trainer-0] two\n" if merge else b"one\ntwo\n"
    assert b"".join(client.logs(ID, follow=True, merge=merge)) == want


def test_who_is_told_to_wait_for_long_does_not_begin(server: FakeServer, client: Client) -> None:
    """The first answer says what is wrong; a queue that is full is no restart."""
    server.routes[f"GET {JOB}"] = [LATER[0]]
    with pytest.raises(Retry) as caught:
        client.wait(ID)
    assert caught.value.code == "database_failed"
    server.routes[f"GET {JOB}"] = [ok(view("running", 1)), error(429, "TooMany", "exec_many", "!")]
    with pytest.raises(TooMany):
        client.wait(ID)


def test_a_job_that_is_not_there_is_no_reason_to_wait(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}/logs"] = [error(404, "NotFound", "job_unknown")]
    with pytest.raises(NotFound):
        list(client.logs(ID, follow=True))


def test_only_a_follower_leaves_a_stopped_server_alone(server: FakeServer) -> None:
    """The first request of a call may start a server; what comes after it may not."""
    asks: list[tuple[bool, bool]] = []

    def find(failed: Endpoint | None, wake: bool) -> Endpoint:
        asks.append((failed is not None, wake))
        return Endpoint(server.url, AK, SK, server.boot)

    boots = iter(["boot-1", "boot-2", "boot-2"])

    def change(seen: Seen) -> Answer:
        server.boot = next(boots)
        ended = server.boot == "boot-2"
        return ok(view("success", 2) if ended else view("running", 1))

    server.routes[f"GET {JOB}"] = change
    with Client(host=server.url, ak=AK, sk=SK) as client:
        client.transport._find = find
        assert client.wait(ID).state == "success"
    assert asks == [(False, True), (True, False)]


def test_a_download_survives_a_server_that_comes_back_late(
    server: FakeServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry.TRANSPORT, "first_pause", 0.001)
    content = bytes(range(256)) * 1000
    name = f"output/{ID}/model.bin"
    rows = [{"path": name, "size": len(content), "time": "2020-05-17T10:16:09Z"}]
    server.routes[f"GET {JOB}/files"] = [ok({"files": rows})]
    away = [Answer(drop=0)] * 4  # one request is tried three times
    down = [Answer(b"<html>", 502)]
    whole = content + hashlib.sha256(content).digest()
    server.routes[f"GET {JOB}/files/{name}"] = [
        *away, Answer(whole, drop=100_000), *away, *down, Answer(whole),
    ]  # fmt: skip
    client.get_files(ID, download_dir=str(tmp_path / "result"))
    assert (tmp_path / "result" / ID / "model.bin").read_bytes() == content
    assert server.seen[-1].query == {"digest": "1"}
