"""`Client` against a server that breaks on demand: one submit is one job, no log byte is lost."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import paddlecloud.data
from paddlecloud import Client
from paddlecloud.client import submit as client_submit
from paddlecloud.client.sdk import Job
from paddlecloud.client.upload import blobs as upload_blobs
from paddlecloud.model.errors import (
    ConfigError,
    Conflict,
    Internal,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    StorageFull,
    Unreachable,
)
from paddlecloud.model.jobs.spec_codec import spec_from_wire, spec_to_wire
from paddlecloud.net import retry
from tests.proxies import proxying
from tests.unit.client.fake_server import (
    AK,
    LACKING,
    SK,
    VALIDATE,
    Answer,
    FakeServer,
    Seen,
    error,
    ok,
    serving,
)

ID = "job-" + "0123456789abcdef" * 2
JOB = f"/api/v1/jobs/{ID}"
MISSING = error(409, "SnapshotMissing", "snapshot_missing")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "run.sh").write_text("echo hi\n")
    (tmp_path / "job" / "data.bin").write_bytes(bytes(range(256)) * 100)
    return tmp_path / "job"


def view(state: str, version: int, **more: Any) -> dict[str, Any]:
    return {"job_id": ID, "job_status": state, "version": version, "failure": None, **more}


def submitted(server: FakeServer) -> list[Any]:
    return [seen.json for seen in server.seen if seen.path == "/api/v1/jobs"]


def test_a_job_shows_its_keys_as_attributes() -> None:
    job = Job(view("running", 3, start_cmd="sh run.sh"))
    assert (job.id, job.state, job.start_cmd, job.final) == (ID, "running", "sh run.sh", False)
    assert Job(view("killed", 4)).final
    assert repr(job) == f"Job(id='{ID}', state='running')"
    assert job == Job(dict(job.view)) and job != Job(view("killed", 4))
    with pytest.raises(AttributeError, match="no_such_key"):
        _ = job.no_such_key
    assert {"id", "state", "start_cmd", "version", "wait", "download"} <= {*dir(job)}
    long = Job(view("failed", 3, job_name="resnet", error_msg="code 1", start_time=""))
    want = f"Job(id='{ID}', state='failed', job_name='resnet', error_msg='code 1')"
    assert repr(long) == want


def test_a_job_that_was_pickled_keeps_its_keys_but_no_connection(client: Client) -> None:
    job = pickle.loads(pickle.dumps(Job(view("running", 3), client)))
    assert job.state == "running"
    with pytest.raises(Invalid, match=r"client\.query_job") as caught:
        job.wait()
    assert caught.value.code == "job_without_client"


def test_a_job_does_what_the_client_does_with_it(
    server: FakeServer, client: Client, results: Path
) -> None:
    server.routes[f"GET {JOB}"] = [
        ok(view("running", 2, workers=[])), ok(view("running", 2)), ok(view("success", 3)),
        ok(view("success", 3)),
    ]  # fmt: skip
    server.routes[f"POST {JOB}/kill"] = [ok(view("killing", 4))]
    server.routes[f"GET {JOB}/logs"] = [Answer(b"hello", 200, {"x-log-offset": "0"})]
    has_outputs(server, f"output/{ID}/rank-0/model")
    job = client.query_job(ID)
    assert job.wait(timeout=30) is job
    assert (job.state, job.final) == ("success", True)
    assert b"".join(job.logs("trainer-1", tail=5)) == b"hello"
    assert server.seen[-1].query["tail"] == "5"
    assert [row["path"] for row in job.files()] == [f"output/{ID}/rank-0/model"]
    assert job.download() == f"output/{ID}"
    assert (results / ID / "rank-0" / "model").read_text() == "x"
    assert job.download("mine") == "mine"
    assert (results.parent / "mine" / ID / "rank-0" / "model").read_text() == "x"
    assert job.kill().state == job.state == "killing"
    assert client.query_job(job).id == ID, "a job names itself"
    assert job.refresh().state == "success"
    server.routes[f"GET {JOB}/files"] = [ok({"job_id": ID, "files": []})]
    with pytest.raises(NotFound, match="no files under output/job-"):
        job.download()


def test_the_log_of_a_job_is_read_with_the_options_of_the_client() -> None:
    ours, theirs = (inspect.signature(kind.logs).parameters for kind in (Job, Client))
    assert {**ours} == {name: how for name, how in theirs.items() if name != "job_id"}


def test_jobs_are_tables_in_a_notebook(server: FakeServer, client: Client) -> None:
    row = view("failed", 1, job_name="<b>", error_msg="trainer-0 exited", queue_reason="")
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": [row], "next": None})]
    jobs = client.list_jobs()
    assert jobs == [Job(row)]
    html = jobs._repr_html_()
    assert html.count("<tr>") == 2
    for text in (ID, "&lt;b&gt;", "failed", "trainer-0 exited"):
        assert text in html
    alone = jobs[0]._repr_html_()
    assert "&lt;b&gt;" in alone and "queue_reason" not in alone
    assert "<b>" not in html + alone


def test_the_package_lists_its_public_names() -> None:
    assert {"Client", "Job", "errors", "__version__"} <= {*dir(paddlecloud)}
    assert {*paddlecloud.data.__all__} <= {*dir(paddlecloud.data)}
    assert paddlecloud.Job is Job


@pytest.mark.parametrize("wrong", ["", " ", "a/b", "a\\b", "..", ".", "a\nb", f" {ID}", "a" * 129])
def test_what_no_job_can_be_called_is_refused_before_anything_is_sent(
    wrong: str, server: FakeServer, client: Client
) -> None:
    for call in (client.query_job, client.kill_job, client.get_files, client.wait, client.logs):
        with pytest.raises(Invalid) as caught:
            call(wrong)
        assert caught.value.code == "job_id_format"
    assert server.seen == []


@pytest.mark.parametrize(
    ("name", "path"), [("last", "last"), (ID[:9], ID[:9]), ("一 号", "%E4%B8%80%20%E5%8F%B7")]
)
def test_the_server_resolves_what_a_job_is_named_by(
    name: str, path: str, server: FakeServer, client: Client
) -> None:
    server.routes[f"GET /api/v1/jobs/{path}"] = [ok(view("running", 2))]
    assert client.query_job(name).id == ID
    assert len(server.seen) == 1


def test_what_changes_a_job_is_asked_for_by_its_id(server: FakeServer, client: Client) -> None:
    """The answer to the first kill is lost; by then `last` is another job."""
    server.routes["GET /api/v1/jobs/last"] = [ok(view("running", 2))]
    server.routes[f"POST {JOB}/kill"] = [Answer(drop=0), ok(view("killing", 3))]
    server.routes[f"POST {JOB}/delete"] = [ok({"bytes": 1})]
    assert client.kill_job("last").state == "killing"
    client.delete_job("last")
    asked = [(seen.method, seen.path) for seen in server.seen]
    get = ("GET", "/api/v1/jobs/last")
    kill, delete = ("POST", f"{JOB}/kill"), ("POST", f"{JOB}/delete")
    assert asked == [get, kill, kill, get, delete]


def test_what_takes_several_requests_stays_with_one_job(server: FakeServer, client: Client) -> None:
    last = "/api/v1/jobs/last"
    server.routes[f"GET {last}"] = [ok(view("running", 2))]
    server.routes[f"GET {JOB}"] = [ok(view("success", 3))]
    assert client.wait("last").state == "success"
    named = {"x-job-id": ID, "x-log-attempt": "1", "x-log-offset": "0"}
    server.routes[f"GET {last}/logs"] = [Answer(b"one two", 200, named, drop=4)]
    server.routes[f"GET {JOB}/logs"] = [Answer(b"two", 200, {"x-log-offset": "4"})]
    assert b"".join(client.logs("last")) == b"one two"
    spec = {"start_cmd": "true", "public_bos": 1}
    server.routes[f"GET {last}/spec"] = [ok({"job_id": ID, "spec": {**spec, "snapshot": "a"}})]
    server.routes[f"GET {JOB}/spec"] = [ok({"job_id": ID, "spec": spec})]
    server.routes[f"GET {JOB}/snapshot"] = [ok({"entries": []})]
    assert client.diff("last", ID)["jobs"] == [ID, ID]


def test_query_and_kill(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}"] = [ok(view("running", 2))]
    server.routes[f"POST {JOB}/kill"] = [ok(view("killing", 3))]
    assert client.query_job(ID).state == "running"
    assert client.kill_job(ID).state == "killing"
    server.routes[f"GET {JOB}"] = [error(404, "NotFound", "job_unknown")]
    with pytest.raises(NotFound):
        client.query_job(ID)


def test_a_remote_server_needs_keys(server: FakeServer) -> None:
    with pytest.raises(ConfigError) as caught:
        Client(host=server.url).whoami()
    assert caught.value.code == "keys_missing"


def test_a_file_of_configuration_is_enough(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text(f"[main]\nak={AK}\nsk={SK}\n[openapi]\nhost={server.url}\n")
    path.chmod(0o600)
    server.routes["GET /api/v1/whoami"] = [ok({"user_id": "me"})]
    with Client(str(path)) as client:
        assert client.whoami() == {"user_id": "me"}


def test_lists_come_page_by_page(server: FakeServer, client: Client) -> None:
    every = [{"job_id": ID, "job_status": "queue", "number": n} for n in range(2500, 0, -1)]

    def page(seen: Seen) -> Answer:
        before = int(seen.query.get("before", 10**9))
        rows = [row for row in every if int(str(row["number"])) < before]
        rows = rows[: int(seen.query["limit"])]
        more = rows[-1]["number"] if rows and rows[-1]["number"] != 1 else None
        return ok({"jobs": rows, "next": more})

    server.routes["GET /api/v1/jobs"] = page
    assert [job.number for job in client.list_jobs(limit=None)] == list(range(2500, 0, -1))
    assert len(client.list_jobs()) == 50
    assert len(client.list_jobs(limit=1200)) == 1200
    assert client.list_jobs(limit=0) == []
    client.list_jobs(state="schedule timeout", name="a b")
    assert server.seen[-1].query["state"] == "schedule%20timeout"


def test_waiting_ends_with_the_job(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}"] = [
        ok(view("queue", 1)),
        ok(view("running", 2)),
        ok(view("running", 2)),
        Answer(drop=0),
        Answer(drop=0),
        ok(view("success", 5)),
    ]
    seen = [(job.state, job.version) for job in client.changes(ID)]
    assert seen == [("queue", 1), ("running", 2), ("success", 5)]
    assert client.wait(ID).state == "success"
    assert server.seen[1].query == {"wait": "30", "version": "1"}


def test_waiting_too_long_is_a_retry(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}"] = [ok(view("running", 2))]
    with pytest.raises(Retry) as caught:
        client.wait(ID, timeout=0.05)
    assert caught.value.code == "wait_timeout"
    assert "running" in str(caught.value)


def test_a_log_is_taken_up_again_where_it_broke(server: FakeServer, client: Client) -> None:
    log = bytes(range(256)) * 400

    def serve(seen: Seen) -> Answer:
        offset = int(seen.query.get("offset", 0))
        cut = 30_000 if offset < 90_000 else None
        return Answer(log[offset:], 200, {"x-log-offset": str(offset)}, drop=cut)

    server.routes[f"GET {JOB}/logs"] = serve
    assert b"".join(client.logs(ID, worker="trainer-0", follow=True)) == log
    offsets = [seen.query.get("offset") for seen in server.seen]
    assert offsets == [None, "30000", "60000", "90000"]
    assert server.seen[0].query["follow"] == "1"


def test_the_tail_of_a_log_goes_on_from_its_own_offset(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}/logs"] = [
        Answer(b"last lines\nmore", 200, {"x-log-offset": "5000"}, drop=11),
        Answer(b"more", 200, {"x-log-offset": "5011"}),
    ]
    assert b"".join(client.logs(ID, tail=2)) == b"last lines\nmore"
    assert server.seen[0].query["tail"] == "2"
    assert server.seen[1].query["offset"] == "5011"
    assert "tail" not in server.seen[1].query


def accepts_uploads(server: FakeServer) -> set[str]:
    """The routes of an upload over a set of contents that the server has."""
    stored: set[str] = set()

    def snapshots(seen: Seen) -> Answer:
        wanted = {row[3] for row in seen.json["entries"] if row[1] == "file"}
        return ok({"id": "sha256:" + "0" * 64, "missing": sorted(wanted - stored)})

    def blobs(seen: Seen) -> Answer:
        body, at, count = seen.body, 0, 0
        while at < len(body):
            size = int.from_bytes(body[at + 32 : at + 40], "big")
            stored.add(body[at : at + 32].hex())
            at, count = at + 40 + size, count + 1
        return ok({"stored": count})

    server.routes["POST /api/v1/snapshots"] = snapshots
    server.routes["POST /api/v1/blobs"] = blobs
    return stored


def test_a_known_directory_moves_no_bytes(
    server: FakeServer, client: Client, directory: Path
) -> None:
    server.routes["POST /api/v1/jobs"] = [ok({"job": view("schedule", 1), "notes": ["a note"]})]
    job = client.submit_job(files=str(directory), start_cmd="sh run.sh", env={"A": "1"})
    assert (job.id, job.notes) == (ID, ["a note"])
    (request,) = submitted(server)
    assert request["spec"]["directory"] == "job"
    assert request["spec"]["env"] == {"A": "1"}
    assert request["spec"]["inherited_env"] == {}, "a team server gives a clean environment"
    assert [seen.path.rpartition("/")[2] for seen in server.seen] == ["validate", "jobs"]
    assert server.seen[0].json["spec"] == request["spec"]


def test_missing_files_are_uploaded_and_the_job_is_one(
    server: FakeServer, client: Client, directory: Path
) -> None:
    stored = accepts_uploads(server)
    answer = ok({"job": view("schedule", 1), "notes": []})
    server.routes[VALIDATE] = [LACKING]
    server.routes["POST /api/v1/jobs"] = [answer]
    client.submit_job(files=directory, start_cmd="sh run.sh")
    assert len(stored) == 2
    (request,) = submitted(server)
    assert len(request["idempotency_key"]) >= 8
    asked = [seen.path.rpartition("/")[2] for seen in server.seen]
    assert asked == ["validate", "snapshots", "blobs", "snapshots", "jobs"]


def test_a_submit_that_breaks_is_still_one_job(
    server: FakeServer, client: Client, directory: Path
) -> None:
    jobs: dict[str, str] = {}
    breaks = iter([Answer(drop=0), Answer(drop=0), error(503, "Retry", "database_busy"), None])

    def submit(seen: Seen) -> Answer:
        """Stores the job, then loses the answer."""
        jobs.setdefault(seen.json["idempotency_key"], ID)
        return next(breaks) or ok({"job": view("schedule", 1), "notes": []})

    server.routes["POST /api/v1/jobs"] = submit
    assert client.submit_job(files=directory, start_cmd="true").id == ID
    assert len(jobs) == 1
    assert len(submitted(server)) == 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(422, "Refused", "gang_refused"), Refused),
        (error(507, "StorageFull", "store_full"), StorageFull),
        (error(409, "Conflict", "idempotency_key_reused"), Conflict),
    ],
)
def test_what_cannot_work_in_a_moment_is_not_repeated(
    server: FakeServer, client: Client, directory: Path, answer: Answer, kind: type[Exception]
) -> None:
    server.routes[VALIDATE] = [answer]
    with pytest.raises(kind):
        client.submit_job(files=directory, start_cmd="true")
    assert len(server.seen) == 1, "nothing is uploaded for a job that is refused"


def test_a_wrong_parameter_is_refused_here(
    server: FakeServer, client: Client, directory: Path
) -> None:
    for parameters in (
        {"start_cmd": "true"},
        {"files": directory},
        {"files": directory / "none", "start_cmd": "true"},
        {"files": directory, "start_cmd": "true", "cpu": "many"},
        {"files": directory, "start_cmd": "true", "no_such": 1},
    ):
        with pytest.raises(Invalid):
            client.submit_job(**parameters)
    assert server.seen == []


def test_a_snapshot_can_be_used_again(server: FakeServer, client: Client) -> None:
    server.routes["POST /api/v1/jobs"] = [ok({"job": view("schedule", 1), "notes": []})]
    snapshot = "sha256:" + "a" * 64
    client.submit_job(snapshot=snapshot, start_cmd="true")
    assert submitted(server)[0]["spec"]["snapshot"] == snapshot
    server.routes["POST /api/v1/jobs"] = [MISSING]
    with pytest.raises(Conflict):
        client.submit_job(snapshot=snapshot, start_cmd="true")


def test_large_files_and_many_small_ones_arrive(
    server: FakeServer, client: Client, directory: Path
) -> None:
    stored = accepts_uploads(server)
    (directory / "large.bin").write_bytes(b"\7" * (upload_blobs.BATCH + 5))
    for number in range(30):
        (directory / f"small-{number}").write_bytes(str(number).encode() * 1000)
    answer = ok({"job": view("schedule", 1), "notes": []})
    server.routes[VALIDATE] = [LACKING]
    server.routes["POST /api/v1/jobs"] = [answer]
    heard: list[tuple[int, int]] = []
    parameters = {"files": directory, "start_cmd": "true"}
    client_submit.submit(client, parameters, lambda now, total: heard.append((now, total)))
    assert len(stored) == 33
    sent = sum(len(seen.body) for seen in server.seen if seen.path == "/api/v1/blobs")
    assert sum(now for now, _ in heard) == sent - 40 * len(stored)


def test_a_server_that_never_has_enough_ends_the_upload(
    server: FakeServer, client: Client, directory: Path
) -> None:
    accepts_uploads(server)
    server.routes[VALIDATE] = [LACKING]
    server.routes["POST /api/v1/blobs"] = [ok({"stored": 0})]
    with pytest.raises(Retry, match="is still incomplete on the server") as caught:
        client.submit_job(files=directory, start_cmd="true")
    assert caught.value.code == "upload_unfinished"
    assert str(caught.value.params["path"]).startswith(str(directory))


def test_what_came_in_the_last_round_has_come(
    server: FakeServer, client: Client, directory: Path
) -> None:
    """Of a server that loses something in between."""
    accepts_uploads(server)
    snapshots = server.routes["POST /api/v1/snapshots"]
    assert callable(snapshots)
    asked: list[Answer] = []
    last = 2 * retry.RESUME.attempts - 1  # each attempt asks before and after it sends

    def forgetful(seen: Seen) -> Answer:
        asked.append(snapshots(seen) if len(asked) in (0, last) else asked[-1])
        return asked[-1]

    server.routes["POST /api/v1/snapshots"] = forgetful
    answer = ok({"job": view("schedule", 1), "notes": []})
    server.routes[VALIDATE] = [LACKING]
    server.routes["POST /api/v1/jobs"] = [answer]
    assert client.submit_job(files=directory, start_cmd="true").id == ID
    assert server.count("POST", "/api/v1/blobs") == retry.RESUME.attempts


def test_to_go_on_with_a_download_is_to_download(
    client: Client, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `get_files --resume` is."""
    rows = [{"path": f"output/{ID}/", "size": 0, "time": "2020-05-17T10:15:39Z"}]
    server.routes[f"GET {JOB}/files"] = [ok({"files": rows})]
    monkeypatch.chdir(tmp_path)
    assert client.get_files(ID, resume=True) == rows
    assert (tmp_path / "output" / ID).is_dir()


def has_outputs(server: FakeServer, *paths: str) -> None:
    """The job has these files, each with one letter in it."""
    rows = [{"path": path, "size": 1, "time": "2020-05-17T10:16:09Z"} for path in paths]
    server.routes[f"GET {JOB}/files"] = [ok({"job_id": ID, "files": rows})]
    server.routes[f"GET {JOB}/snapshot"] = [ok({"entries": []})]
    for path in paths:
        whole = b"x" + hashlib.sha256(b"x").digest()
        server.routes[f"GET {JOB}/files/{path}"] = [Answer(whole)]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`output` in the current directory, with the results of another job."""
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "output" / ("job-" + "9" * 32)
    other.mkdir(parents=True)
    (other / "model").write_text("precious")
    return tmp_path / "output"


def test_the_results_of_many_jobs_go_into_one_directory(
    client: Client, server: FakeServer, results: Path
) -> None:
    has_outputs(server, f"output/{ID}/rank-0/model", f"output/{ID}/log/trainer-0.log")
    client.get_files(ID, download=True)
    assert (results / ID / "rank-0" / "model").read_text() == "x"
    assert (results / ("job-" + "9" * 32) / "model").read_text() == "precious"
    assert len([*results.iterdir()]) == 2, "nothing of the download is left behind"
    with pytest.raises(Invalid, match=f"output/{ID} already exists"):
        client.get_files(ID, download=True)
    (results / ID / "rank-0" / "model").unlink()
    client.get_files(ID, resume=True)
    assert (results / ID / "rank-0" / "model").read_text() == "x"
    with pytest.raises(Invalid, match="output already exists"):
        client.get_files(ID, download_dir="output")


def test_submitted_files_need_a_directory_of_their_own(
    client: Client, server: FakeServer, results: Path
) -> None:
    """Those of several jobs have the same names."""
    has_outputs(server, f"output/{ID}/rank-0/model", "run.sh")
    with pytest.raises(Invalid, match="output already exists"):
        client.get_files(ID, prefix="/", download=True)
    results.rename("elsewhere")
    client.get_files(ID, prefix="/", download=True)
    assert (results / "run.sh").is_file()
    assert (results / ID / "rank-0" / "model").is_file()
    # The download of everything goes on in its own directory, also for a part of it.
    has_outputs(server, f"output/{ID}/rank-0/new")
    client.get_files(ID, resume=True)
    assert (results / ID / "rank-0" / "new").is_file()


def test_a_server_does_not_choose_the_directory(
    client: Client, server: FakeServer, results: Path
) -> None:
    """The id of the job becomes the name of a directory."""
    rows = [{"path": "output/../../x/model", "size": 1, "time": "2020-05-17T10:16:09Z"}]
    server.routes["GET /api/v1/jobs/last/files"] = [ok({"job_id": "../../x", "files": rows})]
    with pytest.raises(Internal, match="a job id"):
        client.get_files("last", download=True)
    assert len([*results.iterdir()]) == 1


def test_no_results_where_output_is_a_file(
    client: Client, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").write_text("mine")
    has_outputs(server, f"output/{ID}/rank-0/model")
    with pytest.raises(PaddleCloudError, match="output") as caught:
        client.get_files(ID, download=True)
    assert "--download_dir" in str(caught.value)
    assert (tmp_path / "output").read_text() == "mine"


def test_a_job_without_files_leaves_its_download_directory_to_the_next_call(
    client: Client, server: FakeServer, tmp_path: Path
) -> None:
    server.routes[f"GET {JOB}/files"] = [ok({"files": []})]
    assert client.get_files(ID, download_dir=str(tmp_path / "result")) == []
    assert [*tmp_path.iterdir()] == []


def test_all_that_is_wrong_with_a_download_is_told_at_once(
    client: Client, server: FakeServer, tmp_path: Path
) -> None:
    names = [f"output/{ID}/rank-0/{name}" for name in ("gone", "lost", "here")]
    rows = [{"path": name, "size": 1, "time": "2020-05-17T10:16:09Z"} for name in names]
    server.routes[f"GET {JOB}/files"] = [ok({"files": rows})]
    lost = error(409, "Conflict", "private_file_changed", path="lost", bos_url="b")
    server.routes[f"GET {JOB}/files/{names[0]}"] = [error(404, "NotFound", "file_unknown")]
    server.routes[f"GET {JOB}/files/{names[1]}"] = [lost]
    whole = b"x" + hashlib.sha256(b"x").digest()
    server.routes[f"GET {JOB}/files/{names[2]}"] = [Answer(whole)]
    with pytest.raises(Conflict) as caught:
        client.get_files(ID, download_dir=str(tmp_path / "result"))
    assert caught.value.code == "download_lost"
    want = {"download_lost": [names[1]], "download_gone": [names[0]]}
    assert caught.value.params["complaints"] == want
    assert names[1] in str(caught.value)
    assert (tmp_path / "result" / ID / "rank-0" / "here").read_bytes() == b"x"


def test_what_a_submit_finds_is_heard(server: FakeServer, directory: Path) -> None:
    heard: list[str] = []
    answer = ok({"job": view("schedule", 1), "notes": []})
    server.routes["POST /api/v1/jobs"] = [answer]
    spec = {"start_cmd": "true", "snapshot": "sha256:" + "0" * 64, "directory": "job"}
    server.routes[f"GET {JOB}/spec"] = [ok({"spec": spec_to_wire(spec_from_wire(spec))})]
    with Client(host=server.url, ak=AK, sk=SK, note=lambda code, **_: heard.append(code)) as told:
        told.submit_job(files=directory, start_cmd="true")
        told.rerun(ID, files=str(directory))
    assert heard == ["files_found", "files_found"]


def test_files_are_listed_and_downloaded(
    server: FakeServer, client: Client, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 1000
    name = f"output/{ID}/rank-0/模型 @1.bin"
    rows = [
        {"path": f"output/{ID}/", "size": 0, "time": "2020-05-17T10:15:39Z"},
        {"path": name, "size": len(content), "time": "2020-05-17T10:16:09Z"},
    ]
    server.routes[f"GET {JOB}/files"] = [ok({"files": rows})]
    quoted = f"output/{ID}/rank-0/%E6%A8%A1%E5%9E%8B%20%401.bin"

    whole = content + hashlib.sha256(content).digest()
    answers = iter([Answer(whole, drop=100_000)])

    def file(seen: Seen) -> Answer:
        assert seen.query == {"digest": "1"}
        return next(answers, Answer(whole))

    server.routes[f"GET {JOB}/files/{quoted}"] = file
    assert client.get_files(ID) == rows
    assert "prefix" not in server.seen[-1].query
    client.get_files(ID, prefix="/", download_dir=tmp_path / "result")
    assert (tmp_path / "result" / ID / "rank-0" / "模型 @1.bin").read_bytes() == content
    for directory in (tmp_path / "result", str(tmp_path / "result")):
        with pytest.raises(Invalid) as caught:
            client.get_files(ID, download_dir=directory)
        assert caught.value.code == "download_dir_exists"


def test_eight_threads_share_a_client(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}"] = lambda seen: ok(view("running", 2))
    states: list[str] = []

    def ask() -> None:
        states.extend(client.query_job(ID).state for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == ["running"] * 80


def test_the_server_s_own_checks_and_housekeeping(server: FakeServer, client: Client) -> None:
    checks = [{"name": "database", "ok": True, "detail": "3 jobs"}]
    server.routes["GET /api/v1/doctor"] = [ok({"checks": checks})]
    server.routes["POST /api/v1/admin/gc"] = [ok({"jobs": 2, "bytes": 10})]
    server.routes[f"GET {JOB}/history"] = [ok({"history": [{"event": "accepted"}]})]
    assert client.doctor() == checks
    assert client.gc() == {"jobs": 2, "bytes": 10}
    assert client.history(ID) == [{"event": "accepted"}]


def test_a_server_that_is_down_is_unreachable() -> None:
    with serving() as gone:
        url = gone.url
    with pytest.raises(Unreachable) as caught:
        Client(host=url, ak=AK, sk=SK).query_job(ID)
    assert url.removeprefix("http://") in str(caught.value)


def test_a_client_behind_a_proxy(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is known to the proxy alone."""
    server.routes["GET /api/v1/whoami"] = [ok({"user_id": "u"})]
    server.boot = ""
    with proxying(server.server_address[1]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with Client(host="http://cloud.example:8000", ak=AK, sk=SK) as client:
            assert client.whoami()["user_id"] == "u"
        assert proxy.seen == ["GET http://cloud.example:8000/api/v1/whoami HTTP/1.1"]
        assert server.seen[0].headers["host"] == "cloud.example:8000"
        monkeypatch.setenv("no_proxy", "example")
        with Client(host="http://cloud.example:8000", ak=AK, sk=SK) as client:
            assert client.transport.pool.proxies.proxy_for("http", "cloud.example", 8000) is None
