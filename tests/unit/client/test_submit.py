"""What a person is told who interrupts a submit, or whose answer is lost: whether there may be a
job, and what is kept; and of a directory that changes meanwhile."""

from __future__ import annotations

import json
from _thread import interrupt_main
from pathlib import Path
from socket import create_server
from threading import Thread

import pytest

from paddlecloud.client import submit
from paddlecloud.client.rerun import rerun
from paddlecloud.client.sdk import Client
from paddlecloud.client.transport import Transport
from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.errors import Conflict, PaddleCloudError, Retry, Unreachable
from paddlecloud.model.jobs.spec_codec import spec_from_wire, spec_to_wire
from paddlecloud.net import retry
from tests.unit.client.fake_server import (
    AK,
    BUCKET,
    LACKING,
    SK,
    VALID,
    VALIDATE,
    Answer,
    FakeServer,
    Seen,
    error,
    ok,
)

FIRST = "job-" + "1" * 32
SPEC = spec_to_wire(
    spec_from_wire({"start_cmd": "true", "snapshot": "sha256:" + "0" * 64, "directory": "job"})
)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.TRANSPORT, "first_pause", 0.0)


def interrupted(_: Seen) -> Answer:
    """Ctrl-C before the answer is there."""
    interrupt_main()
    return ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})


def told_at_submit(client: Client, directory: Path) -> list[str]:
    told: list[str] = []
    parameters = {"files": str(directory), "start_cmd": "true"}
    with pytest.raises(KeyboardInterrupt):
        submit.submit(client, parameters, note=lambda code, **_: told.append(code))
    return told


def test_a_job_may_be_there_when_its_answer_was_not_waited_for(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    server.routes["POST /api/v1/jobs"] = interrupted
    assert told_at_submit(client, tmp_path) == ["submit_unsure"]
    for lang in LANGUAGES:
        assert "list_jobs" in render("submit_unsure", {}, lang)


def test_so_it_is_with_one_that_is_run_again(server: FakeServer, client: Client) -> None:
    server.routes["GET /api/v1/jobs/job-1/spec"] = [ok({"spec": SPEC})]
    server.routes["POST /api/v1/jobs"] = interrupted
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        rerun(client, "job-1", {}, note=lambda code, **_: told.append(code))
    assert told == ["submit_unsure"]


JSON = {"content_type": "application/json"}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Answer(drop=0), "server_closed"),
        (Answer(b'{"job"', drop=3), "server_closed"),
        (Answer(b'{"job', headers=JSON), "answer_damaged"),
        (Answer(b"<html>", 504), "unknown_answer"),
        (Answer(b"<html>", 500), "unknown_answer"),
    ],
    ids=["none", "a part", "damaged", "a proxy waited in vain", "a proxy broke"],
)
@pytest.mark.parametrize("is_rerun", [False, True])
@pytest.mark.usefixtures("at_once")
def test_a_job_may_be_there_when_its_answer_is_lost(
    server: FakeServer, client: Client, tmp_path: Path, answer: Answer, cause: str, is_rerun: bool
) -> None:
    """And who repeats all that is worth it must not make a second one."""
    server.routes[f"GET /api/v1/jobs/{FIRST}/spec"] = [ok({"spec": SPEC})]
    server.routes["POST /api/v1/jobs"] = [answer]
    with pytest.raises(PaddleCloudError) as caught:
        if is_rerun:
            client.rerun(FIRST)
        else:
            client.submit_job(files=tmp_path, start_cmd="true")
    assert (caught.value.code, caught.value.params["cause"]) == ("submit_unanswered", cause)
    for lang in LANGUAGES:
        assert cause not in caught.value.text(lang)
    assert not isinstance(caught.value, Retry)
    for lang in LANGUAGES:
        assert "list_jobs" in caught.value.text(lang)
    assert len({seen.json["idempotency_key"] for seen in server.seen if seen.body}) == 1


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ([Answer(drop=0), error(503, "Retry", "database_busy")], "database_busy"),
        ([error(503, "Retry", "database_unsure")], "database_unsure"),
        ([error(500, "Internal", "internal_error")], "internal_error"),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_so_it_is_when_the_server_cannot_say_it_either(
    server: FakeServer, client: Client, tmp_path: Path, answers: list[Answer], cause: str
) -> None:
    server.routes["POST /api/v1/jobs"] = [*answers]
    with pytest.raises(PaddleCloudError) as caught:
        client.submit_job(files=tmp_path, start_cmd="true")
    assert (caught.value.code, caught.value.params["cause"]) == ("submit_unanswered", cause)
    reason = caught.value.__cause__
    assert isinstance(reason, PaddleCloudError)
    for lang in LANGUAGES:
        assert reason.text(lang) in caught.value.text(lang)


@pytest.mark.usefixtures("at_once")
def test_so_it_is_when_the_server_is_away_after_that(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(65536)
                known = VALID.body
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(known)
                connection.sendall(head + known)
                connection.recv(65536)
                listening.close()

        serving = Thread(target=serve)
        serving.start()
        with Client(host=f"http://127.0.0.1:{port}", ak=AK, sk=SK) as client:
            with pytest.raises(PaddleCloudError) as caught:
                client.submit_job(files=tmp_path, start_cmd="true")
            assert caught.value.params["cause"] == "server_unreachable"
            with pytest.raises(Unreachable) as caught:
                client.submit_job(files=tmp_path, start_cmd="true")
            assert caught.value.code == "server_unreachable"
        serving.join()


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ([error(503, "Retry", "database_busy")], "database_busy"),
        ([error(503, "Unreachable", "store_unreachable")], "store_unreachable"),
        ([Answer(drop=0), error(422, "Refused", "quota_jobs")], "quota_jobs"),
        ([Answer(b"<html>", 404)], "unknown_answer"),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_a_refusal_is_told_as_it_is(
    server: FakeServer, client: Client, tmp_path: Path, answers: list[Answer], code: str
) -> None:
    """A refusal also after a try whose answer was lost: it was the same request."""
    server.routes["POST /api/v1/jobs"] = [*answers]
    with pytest.raises(PaddleCloudError) as caught:
        client.submit_job(files=tmp_path, start_cmd="true")
    assert caught.value.code == code


def test_of_a_job_is_heard_before_anything_else_is_told(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    server.routes["POST /api/v1/jobs"] = [
        ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})
    ]
    heard: list[object] = []
    parameters = {"files": str(tmp_path), "start_cmd": "true"}

    def note(code: str, **_: object) -> None:
        heard.append(code)

    submit.submit(client, parameters, note=note, accepted=heard.append)
    assert heard == [{"job_id": "job-1", "job_status": "submitted"}, "files_none"]


def test_nothing_is_there_before_the_server_is_found(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "transport", Transport(find))  # type: ignore[arg-type]
    assert told_at_submit(client, tmp_path) == []


@pytest.mark.parametrize("sent", [False, True])
def test_what_arrived_of_an_upload_is_kept(
    server: FakeServer, client: Client, tmp_path: Path, sent: bool
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    server.routes[VALIDATE] = [LACKING]
    answers = iter([ok({"missing": [digest]})] if sent else [])
    server.routes["POST /api/v1/snapshots"] = lambda seen: next(answers, None) or interrupted(seen)
    server.routes["POST /api/v1/blobs"] = [ok({})]
    assert told_at_submit(client, tmp_path) == (["files_found", "upload_kept"] if sent else [])


@pytest.mark.parametrize("changes", [2, 3])
def test_a_directory_that_changes_is_told_as_it_is_submitted(
    server: FakeServer, client: Client, tmp_path: Path, changes: int
) -> None:
    """A growing log: the first readings are no news, and the third one is the last."""
    (tmp_path / "d").mkdir()
    log = tmp_path / "d" / "log"
    log.write_bytes(b"a")
    left = [*range(changes)]

    def missing(seen: Seen) -> Answer:
        entries = json.loads(seen.body)["entries"]
        if left:
            left.pop()
            log.write_bytes(log.read_bytes() + b"a")
            return ok({"missing": [row[3] for row in entries if row[1] == "file"]})
        return ok({"missing": []})

    submitted = ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})
    server.routes[VALIDATE] = [LACKING]
    server.routes["POST /api/v1/jobs"] = [submitted]
    server.routes["POST /api/v1/snapshots"] = missing
    told: list[tuple[str, object]] = []

    def note(code: str, **params: object) -> None:
        told.append((code, params.get("path") or params.get("size")))

    again = ("files_read_again", "d/log")
    parameters = {"files": str(tmp_path), "start_cmd": "true"}
    if changes < submit.TRIES:
        submit.submit(client, parameters, note=note)
        assert told == [again, again, ("files_found", "3 B")]
        return
    with pytest.raises(Conflict) as caught:
        submit.submit(client, parameters, note=note)
    assert (caught.value.code, caught.value.params["path"]) == ("files_changed", "d/log")
    assert "ignore rule" in str(caught.value)
    assert told == [again, again]


def test_a_file_that_changes_while_it_is_submitted_to_a_bucket_is_read_again(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bucket gets is what was read, although the new bytes are as many."""
    monkeypatch.setenv("PADDLECLOUD_BOS_AK", "AKB")
    monkeypatch.setenv("PADDLECLOUD_BOS_SK", "SKB")
    (tmp_path / "a").write_bytes(b"old")

    def listed(_: Seen) -> Answer:
        (tmp_path / "a").write_bytes(b"new")
        server.routes["POST /api/v1/private/files"] = [ok({"files": []})]
        return ok({"files": []})

    server.routes["POST /api/v1/private/files"] = listed
    address = f"{server.url}{BUCKET}a"
    server.routes["POST /api/v1/private/addresses"] = [ok({"addresses": [address]})]
    server.routes[f"PUT {BUCKET}a"] = [Answer(b"", headers={"etag": '"0"'})]
    server.routes["POST /api/v1/jobs"] = [
        ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})
    ]
    told: list[str] = []
    parameters = {"files": str(tmp_path), "start_cmd": "true", "public_bos": 0}
    parameters["bos_url"] = "bucket.bj.bcebos.com/dir"
    with Client(host=server.url, ak=AK, sk=SK) as client:
        submit.submit(client, parameters, note=lambda code, **_: told.append(code))
    assert told == ["files_found", "files_read_again", "files_found"]
    assert [seen.body for seen in server.seen if seen.method == "PUT"] == [b"new"]
