"""Signed calls: every try has a signature of its own, and only safe requests are tried twice."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest

from paddlecloud.client.transport import DONE, Transport
from paddlecloud.model.errors import (
    Conflict,
    Internal,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    SnapshotMissing,
    Unreachable,
)
from paddlecloud.net.endpoint import Endpoint, split_url
from paddlecloud.net.retry import IMMEDIATE, TRANSPORT
from tests.unit.client.fake_server import (
    AK,
    SK,
    Answer,
    FakeServer,
    Seen,
    error,
    ok,
    serving,
)


def endpoint_of(server: FakeServer, boot: str = "boot-1") -> Endpoint:
    return Endpoint(server.url, AK, SK, boot)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRANSPORT, "first_pause", 0.0)


@pytest.fixture
def transport(server: FakeServer) -> Iterator[Transport]:
    made = Transport(lambda failed, wake: failed or endpoint_of(server))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("http://127.0.0.1:8000", ("http", "127.0.0.1", 8000)),
        ("https://cloud.example.com", ("https", "cloud.example.com", 443)),
        ("http://cloud.example.com/", ("http", "cloud.example.com", 80)),
        ("http://[::1]:99", ("http", "::1", 99)),
        ("http://[::1]", ("http", "::1", 80)),
    ],
)
def test_urls_are_split(url: str, want: tuple[str, str, int]) -> None:
    assert split_url(url) == want


DAMAGED = Answer(b'{"files": [', 200, {"content-type": "application/json"})


def test_an_answer_that_was_damaged_is_asked_for_again(
    server: FakeServer, transport: Transport
) -> None:
    server.routes["GET /api/v1/files"] = [DAMAGED, DAMAGED, ok({"files": []})]
    assert transport.get("/files", schema=DONE) == {"files": []}
    server.routes["POST /api/v1/kill"] = [DAMAGED, ok({"done": 1})]
    assert transport.post("/kill", {}, idempotent=True, schema=DONE) == {"done": 1}


@pytest.mark.parametrize(("method", "asked"), [("get", TRANSPORT.attempts), ("post", 1)])
def test_that_answers_are_damaged_is_told(
    server: FakeServer, transport: Transport, method: str, asked: int
) -> None:
    server.routes[f"{method.upper()} /api/v1/files"] = [DAMAGED]
    with pytest.raises(Retry) as caught:
        getattr(transport, method)("/files", {}, schema=DONE)
    assert caught.value.code == "answer_damaged"
    assert "damaged in transit" in caught.value.text("en")
    assert server.count(method.upper(), "/api/v1/files") == asked


def test_a_call_is_signed_and_says_its_language(server: FakeServer, transport: Transport) -> None:
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": []})]
    transport.lang = "zh"
    query = {"name": "a b/ü&=", "before": None}
    assert transport.get("/jobs", query, schema=DONE) == {"jobs": []}
    seen = server.seen[0]
    assert seen.query == {"name": "a%20b%2F%C3%BC%26%3D"}
    assert seen.headers["accept-language"] == "zh"


def test_a_connection_is_used_again(server: FakeServer, transport: Transport) -> None:
    server.routes["GET /api/v1/whoami"] = [ok({})]
    for _ in range(5):
        transport.get("/whoami", schema=DONE)
    assert server.connections == 1
    assert len(server.nonces) == 5


def test_threads_share_a_transport(server: FakeServer, transport: Transport) -> None:
    server.routes["GET /api/v1/whoami"] = lambda seen: ok({"path": seen.path})
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(20):
            answer = transport.get("/whoami", schema=DONE)
            if answer != {"path": "/api/v1/whoami"}:
                wrong.append(answer)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(server.nonces) == 160
    assert server.connections <= 8


def test_a_dropped_get_is_asked_again_with_a_new_signature(
    server: FakeServer, transport: Transport
) -> None:
    server.routes["GET /api/v1/whoami"] = [ok({}), Answer(drop=0), ok({"second": True})]
    transport.get("/whoami", schema=DONE)
    assert transport.get("/whoami", schema=DONE) == {"second": True}
    assert len(server.nonces) == 3


def test_an_answer_that_is_cut_is_asked_for_again(server: FakeServer, transport: Transport) -> None:
    whole = ok({"files": ["a", "b"]})
    cut = Answer(whole.body, drop=10)
    server.routes["GET /api/v1/files"] = [cut, cut, whole]
    assert transport.get("/files", schema=DONE) == {"files": ["a", "b"]}
    server.routes["GET /api/v1/files"] = [cut]
    with pytest.raises(Unreachable):
        transport.get("/files", schema=DONE)
    assert server.count("GET", "/api/v1/files") == 3 + TRANSPORT.attempts
    server.routes["POST /api/v1/jobs"] = [cut, whole]
    with pytest.raises(Unreachable):
        transport.post("/jobs", {}, schema=DONE)
    assert server.count("POST", "/api/v1/jobs") == 1


def test_a_dropped_post_is_not_repeated_unless_that_is_safe(
    server: FakeServer, transport: Transport
) -> None:
    server.routes["POST /api/v1/jobs"] = [Answer(drop=0)]
    with pytest.raises(Unreachable) as caught:
        transport.post("/jobs", {}, schema=DONE)
    assert caught.value.code == "server_closed"
    assert server.count("POST", "/api/v1/jobs") == 1
    server.routes["POST /api/v1/jobs"] = [Answer(drop=0), ok({"done": 1})]
    assert transport.post("/jobs", {}, idempotent=True, schema=DONE) == {"done": 1}


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (error(404, "NotFound", "job_unknown"), NotFound, "job_unknown"),
        (error(422, "Refused", "gang_refused"), Refused, "gang_refused"),
        (error(409, "SomethingNew", "x"), Conflict, "x"),
        (Answer(b"<html>", 502), Retry, "unknown_answer"),
        (Answer(b"[]", 500), Internal, "unknown_answer"),
        (Answer(b"not json", 200), Internal, "unknown_answer"),
        (Answer(b"[1]", 200), Internal, "unknown_answer"),
    ],
    ids=[
        *("not found", "refused", "a newer class", "a proxy's page", "odd JSON"),
        *("not JSON at all", "no object"),
    ],
)
def test_errors_keep_their_class(
    server: FakeServer, transport: Transport, answer: Answer, kind: type[Exception], code: str
) -> None:
    server.routes["GET /api/v1/whoami"] = [answer]
    with pytest.raises(PaddleCloudError) as caught:
        transport.get("/whoami", schema=DONE)
    assert type(caught.value) is kind
    assert caught.value.code == code


def test_an_error_that_comes_in_pieces_keeps_its_class(
    server: FakeServer, transport: Transport
) -> None:
    missing = error(409, "SnapshotMissing", "snapshot_missing", "upload first")
    missing.chunk = 7
    server.routes["GET /api/v1/whoami"] = [missing, ok({"next": 1})]
    with pytest.raises(SnapshotMissing, match="upload first"):
        transport.get("/whoami", schema=DONE)
    assert transport.get("/whoami", schema=DONE) == {"next": 1}
    assert server.connections == 1


def test_an_error_without_end_is_not_read_for_ever(
    server: FakeServer, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlecloud.client.transport.MAX_ERROR", 1000)
    server.routes["GET /api/v1/whoami"] = [Answer(b"x" * 100_000, 500, hold=True)]
    with pytest.raises(Internal):
        transport.get("/whoami", schema=DONE)


def test_the_words_of_the_server_win(server: FakeServer, transport: Transport) -> None:
    server.routes["GET /api/v1/whoami"] = [error(404, "NotFound", "from_the_future", "新的句子")]
    with pytest.raises(NotFound) as caught:
        transport.get("/whoami", schema=DONE)
    assert caught.value.text("en") == "新的句子"


def test_a_stream_gives_its_connection_back(server: FakeServer, transport: Transport) -> None:
    server.routes["GET /api/v1/file"] = [Answer(b"x" * 3_000_000)]
    for _ in range(2):
        with transport.open("/file") as stream:
            got = b""
            while piece := stream.read(65536):
                got += piece
            assert got == b"x" * 3_000_000
    assert server.connections == 1
    with transport.open("/file") as stream:
        stream.read(10)
    with transport.open("/file") as stream:
        assert len(stream.read()) == 3_000_000
    assert server.connections == 2


def test_a_long_body_is_sent_in_each_try(server: FakeServer, transport: Transport) -> None:
    data = b'"%b"' % (b"a" * 2000)
    server.routes["POST /api/v1/snapshots"] = [Answer(drop=0), ok({"missing": []})]
    assert transport.post("/snapshots", data, idempotent=True, schema=DONE) == {"missing": []}
    assert [seen.body for seen in server.seen] == [data] * 2


def test_a_pack_is_not_sent_again_when_the_connection_breaks(
    server: FakeServer, transport: Transport
) -> None:
    """Part of it may have arrived."""
    data = b"a" * 2000
    server.routes["POST /api/v1/blobs"] = [Answer(drop=0), ok({"stored": 2})]
    with pytest.raises(Unreachable, match="closed the connection"):
        transport.send("/blobs", data, hashlib.sha256(data).hexdigest())
    assert [seen.body for seen in server.seen] == [data]


def test_another_program_on_the_port_is_not_believed(server: FakeServer) -> None:
    """The old port of a dead server may belong to anybody: ask where ours is, and ask again."""
    server.boot = ""
    server.routes["POST /api/v1/jobs"] = [ok({"not": "ours"})]
    with serving("boot-2") as ours:
        ours.routes["POST /api/v1/jobs"] = [ok({"ours": True})]
        asked: list[Endpoint | None] = []

        def find(failed: Endpoint | None, wake: bool) -> Endpoint:
            asked.append(failed)
            return endpoint_of(server) if failed is None else endpoint_of(ours, "boot-2")

        transport = Transport(find)
        assert transport.post("/jobs", {}, schema=DONE) == {"ours": True}
        assert transport.post("/jobs", {}, schema=DONE) == {"ours": True}
        transport.close()
    assert len(asked) == 2
    assert server.count("POST", "/api/v1/jobs") == 1
    assert ours.count("POST", "/api/v1/jobs") == 2


def test_a_later_start_of_our_own_server_is_believed(server: FakeServer) -> None:
    """It restarted on its old port between reading server.json and asking: nothing is repeated."""
    server.boot = "boot-2"
    server.routes["POST /api/v1/jobs"] = [ok({"done": 1})]
    transport = Transport(
        lambda failed, wake: endpoint_of(server, "boot-2" if failed else "boot-1")
    )
    assert transport.post("/jobs", {}, schema=DONE) == {"done": 1}
    transport.close()
    assert server.count("POST", "/api/v1/jobs") == 1


def test_nobody_listening_is_asked_once_more_elsewhere(server: FakeServer) -> None:
    with serving() as gone:
        dead = endpoint_of(gone)
    server.routes["POST /api/v1/jobs"] = [ok({"done": 1})]
    transport = Transport(lambda failed, wake: endpoint_of(server) if failed else dead)
    assert transport.post("/jobs", {}, schema=DONE) == {"done": 1}
    transport.close()


def test_a_remote_server_that_is_down_is_named() -> None:
    with serving() as gone:
        dead = endpoint_of(gone)
    with pytest.raises(Unreachable) as caught:
        Transport(lambda failed, wake: failed or dead).get("/whoami", schema=DONE)
    assert str(dead.port) in str(caught.value)


def test_what_happens_can_be_traced(server: FakeServer) -> None:
    lines: list[str] = []
    server.routes["GET /api/v1/whoami"] = [ok({})]
    transport = Transport(lambda failed, wake: endpoint_of(server), trace=lines.append)
    transport.get("/whoami", schema=DONE)
    transport.close()
    assert lines[0].startswith("GET /api/v1/whoami 200 ")


def test_the_secret_never_travels(server: FakeServer, transport: Transport) -> None:
    def check(seen: Seen) -> Answer:
        assert SK not in str(seen.headers) and SK.encode() not in seen.body
        return ok({})

    server.routes["POST /api/v1/jobs"] = check
    transport.post("/jobs", {"x": 1}, schema=DONE)
    assert server.count("POST", "/api/v1/jobs") == 1


def damaged() -> Answer:
    return error(401, "Unauthenticated", "auth_body_hash")


def test_a_body_that_was_damaged_on_the_way_is_sent_again(
    server: FakeServer, transport: Transport
) -> None:
    """The server has done nothing with it, so even what may be done once only is repeated."""
    server.routes["POST /api/v1/jobs"] = [damaged(), damaged(), ok({"job": {}})]
    assert transport.post("/jobs", {"spec": {}}, schema=DONE) == {"job": {}}
    assert [seen.json for seen in server.seen] == [{"spec": {}}] * 3
    assert len(server.nonces) == 3


def test_a_line_that_damages_everything_is_told(server: FakeServer, transport: Transport) -> None:
    server.routes["POST /api/v1/jobs"] = [damaged()] * 9
    with pytest.raises(PaddleCloudError) as caught:
        transport.post("/jobs", {}, schema=DONE)
    assert caught.value.code == "auth_body_hash"
    assert len(server.seen) == TRANSPORT.attempts


BUSY = error(503, "Retry", "database_busy", "busy")


def test_a_server_that_is_busy_is_asked_again_if_that_is_safe(
    server: FakeServer, transport: Transport
) -> None:
    server.routes["GET /api/v1/whoami"] = [BUSY, BUSY, ok({"third": 1})]
    assert transport.get("/whoami", schema=DONE) == {"third": 1}
    server.routes["POST /api/v1/kill"] = [BUSY, ok({"second": 1})]
    assert transport.post("/kill", {}, idempotent=True, schema=DONE) == {"second": 1}
    server.routes["POST /api/v1/jobs"] = [BUSY, ok({})]
    with pytest.raises(Retry):
        transport.post("/jobs", {}, schema=DONE)
    assert server.count("POST", "/api/v1/jobs") == 1


def test_a_caller_with_a_loop_of_its_own_waits_for_nothing(
    server: FakeServer, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TRANSPORT, "first_pause", 3600.0)
    server.routes["GET /api/v1/whoami"] = [BUSY]
    with pytest.raises(Retry):
        transport.get("/whoami", schema=DONE, policy=IMMEDIATE)
    assert len(server.seen) == IMMEDIATE.attempts


def test_a_longer_retry_after_than_the_budget_ends_the_attempts(
    server: FakeServer, transport: Transport
) -> None:
    late = error(503, "Retry", "database_busy", "busy")
    late.headers["retry-after"] = "3600"
    server.routes["GET /api/v1/whoami"] = [late]
    with pytest.raises(Retry):
        transport.get("/whoami", schema=DONE)
    assert len(server.seen) == 1


def test_a_server_that_was_there_is_waited_for(transport: Transport, server: FakeServer) -> None:
    server.routes["GET /api/v1/whoami"] = [ok({})]
    transport.get("/whoami", schema=DONE)
    with serving() as gone:
        dead = endpoint_of(gone)
    transport.close()
    transport._endpoint = dead
    tried: list[Endpoint | None] = []

    def find(failed: Endpoint | None, wake: bool) -> Endpoint:
        tried.append(failed)
        return dead if len(tried) < 3 else endpoint_of(server)

    transport._find = find
    assert transport.get("/whoami", schema=DONE) == {}
    assert tried == [dead] * 3


def test_a_server_that_never_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRANSPORT, "first_pause", 3600.0)
    with serving() as gone:
        dead = endpoint_of(gone)
    with pytest.raises(Unreachable):
        Transport(lambda failed, wake: failed or dead).get("/whoami", schema=DONE)
