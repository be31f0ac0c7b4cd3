"""What a person is told who interrupts a submit: whether there may be a job, and what is kept."""

from __future__ import annotations

from _thread import interrupt_main
from pathlib import Path

import pytest

from paddlecloud.client import submission
from paddlecloud.client.reruns import rerun
from paddlecloud.client.sdk import Client
from paddlecloud.client.transport import Transport
from paddlecloud.model.texts import LANGUAGES, render
from paddlecloud.model.wirespec import spec_from_wire, spec_to_wire
from tests.unit.client.fake_server import Answer, FakeServer, Seen, error, ok

MISSING = error(404, "SnapshotMissing", "snapshot_missing", snapshot="sha256:0")


def interrupted(_: Seen) -> Answer:
    """Ctrl-C before the answer is there."""
    interrupt_main()
    return ok({"job": {"job_id": "job-1"}, "notes": []})


def told_at_submit(client: Client, directory: Path) -> list[str]:
    told: list[str] = []
    parameters = {"files": str(directory), "start_cmd": "true"}
    with pytest.raises(KeyboardInterrupt):
        submission.submit(client, parameters, note=lambda code, **_: told.append(code))
    return told


def test_a_job_may_be_there_when_its_answer_was_not_waited_for(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    server.routes["POST /api/v1/jobs"] = interrupted
    assert told_at_submit(client, tmp_path) == ["submit_unsure"]
    for lang in LANGUAGES:
        assert "list_jobs" in render("submit_unsure", {}, lang)


def test_so_it_is_with_one_that_is_run_again(server: FakeServer, client: Client) -> None:
    spec = {"start_cmd": "true", "snapshot": "sha256:" + "0" * 64, "directory": "job"}
    server.routes["GET /api/v1/jobs/job-1/spec"] = [
        ok({"spec": spec_to_wire(spec_from_wire(spec))})
    ]
    server.routes["POST /api/v1/jobs"] = interrupted
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        rerun(client, "job-1", {}, note=lambda code, **_: told.append(code))
    assert told == ["submit_unsure"]


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
    server.routes["POST /api/v1/jobs"] = [MISSING]
    answers = iter([ok({"missing": [digest]})] if sent else [])
    server.routes["POST /api/v1/snapshots"] = lambda seen: next(answers, None) or interrupted(seen)
    server.routes["POST /api/v1/blobs"] = [ok({})]
    assert told_at_submit(client, tmp_path) == ["files_found", *(["upload_kept"] if sent else [])]
