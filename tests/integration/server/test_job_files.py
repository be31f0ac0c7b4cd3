"""Files of a job: what is listed, what is downloaded, where uploads go, and who may see them."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from paddlecloud.model.files.snapshot import Snapshot
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Access
from paddlecloud.server.route_table import ROUTES
from paddlecloud.server.services.files import snapshots
from tests.contract.disk import open_descriptors
from tests.integration.server.world import World, eventually


def finished(world: World) -> str:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.upload(order, "model/w.bin", b"weights", mtime=1_589_710_569)
    world.agent.upload(order, "events", b"e", area="log", mtime=1_589_710_569)
    world.agent.run(order, b"log\n")
    return job_id


def listed(world: World, job_id: str, prefix: str | None = None) -> list[str]:
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files", prefix=prefix)["files"]
    return [row["path"] for row in rows]


def test_the_outputs_are_listed_with_the_directory_first(world: World) -> None:
    job_id = finished(world)
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    root = f"output/{job_id}/"
    assert [(row["path"], row["size"]) for row in rows] == [
        (root, 0),
        (f"{root}log/rank-0/events", 1),
        (f"{root}log/trainer-0.log", 4),
        (f"{root}rank-0/model/w.bin", 7),
    ]
    assert rows[3]["time"] == "2020-05-17T10:16:09Z"


def test_the_forms_of_a_prefix(world: World) -> None:
    job_id = finished(world)
    root = f"output/{job_id}/"
    everything = listed(world, job_id)
    assert listed(world, job_id, root.rstrip("/")) == everything
    assert listed(world, job_id, root) == everything
    assert listed(world, job_id, f"/{root}") == everything
    assert listed(world, job_id, f"{root}log") == everything[1:3]
    assert listed(world, job_id, f"{root}log/tr") == everything[2:3]
    assert listed(world, job_id, "/") == [*everything, "run.sh"]
    assert listed(world, job_id, "run") == ["run.sh"]
    assert listed(world, job_id, "output/job-of-somebody-else") == []
    assert listed(world, job_id, f"{root}../../") == []


def test_a_directory_is_not_the_one_beside_it(world: World) -> None:
    files = {"data-1/a": b"a", "data-10/a": b"a"}
    job_id = world.submit(snapshot=world.snapshot(files))
    assert listed(world, job_id, "data-1") == ["data-1/a"]
    assert listed(world, job_id, "data-") == ["data-1/a", "data-10/a"]


def test_a_link_or_an_empty_directory_is_not_what_begins_with_its_name(world: World) -> None:
    files = {"bin/latest.txt": b"1", "run.sh": b"2", "runs/z": b"3"}
    others = [["bin/latest", "link", 0, "", 0, "latest.txt"], ["run", "dir", 0, "", 0, ""]]
    job_id = world.submit(snapshot=world.snapshot(files, others=others))
    for prefix in ("bin/latest", "run", "run/"):
        assert listed(world, job_id, prefix) == []
    assert listed(world, job_id, "bin/la") == ["bin/latest.txt"]
    assert listed(world, job_id, "ru") == ["run.sh", "runs/z"]


def test_a_job_without_outputs_has_its_directory(world: World) -> None:
    job_id = world.submit()
    assert listed(world, job_id) == [f"output/{job_id}/"]


def test_a_worker_that_said_nothing_has_an_empty_log(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    log = f"output/{job_id}/log/trainer-0.log"
    assert log not in [row["path"] for row in rows_of(world, job_id)]
    world.agent.exit(order, exit_code=7)
    assert [(row["path"], row["size"]) for row in rows_of(world, job_id)] == [
        (f"output/{job_id}/", 0),
        (log, 0),
    ]
    assert [row["path"] for row in rows_of(world, job_id, prefix=log)] == [log]
    answer = world.user.call("GET", f"/api/v1/jobs/{job_id}/files/{log}")
    assert (answer.status, answer.body) == (200, b"")
    other = world.user.call("GET", f"/api/v1/jobs/{job_id}/files/output/{job_id}/log/trainer-1.log")
    assert other.status == 404


def rows_of(world: World, job_id: str, **query: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = world.user.get(f"/api/v1/jobs/{job_id}/files", **query)["files"]
    return rows


def test_bytes_come_back_whole_and_from_an_offset(world: World) -> None:
    job_id = finished(world)
    path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/model/w.bin"
    reply = world.raw(path)
    assert (reply.body, reply.headers["content-length"]) == (b"weights", "7")
    assert world.raw(path, offset=3).body == b"ghts"
    assert world.raw(path, offset=99).body == b""
    assert world.raw(f"/api/v1/jobs/{job_id}/files/run.sh").body == b"echo hi\n"


def test_a_snapshot_is_not_taken_apart_for_each_of_its_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {f"data/{number}": b"%d" % number for number in range(20)}
    job_id = world.submit(snapshot=world.snapshot(contents))
    taken: list[str] = []
    manifest = snapshots.manifest

    def counted(deps: Deps, owner: str, snapshot_id: str) -> Snapshot:
        taken.append(snapshot_id)
        return manifest(deps, owner, snapshot_id)

    monkeypatch.setattr(snapshots, "manifest", counted)
    for path, content in contents.items():
        assert world.raw(f"/api/v1/jobs/{job_id}/files/{path}").body == content
    assert len(taken) == 1


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("nothing", {}, 404),
        ("output/other/rank-0/x", {}, 404),
        ("../../server/server.key", {}, 400),
        ("output/{job_id}/../../x", {}, 400),
        ("/etc/passwd", {}, 400),
        ("run.sh/", {}, 400),
        ("run.sh", {"offset": -1}, 400),
        ("run.sh", {"offset": 10**30}, 400),
        ("run.sh", {"offset": "x"}, 400),
        ("run.sh", {"colour": "blue"}, 400),
    ],
)
def test_what_is_not_a_file_of_the_job_is_refused(
    world: World, path: str, query: dict[str, object], status: int
) -> None:
    job_id = world.submit()
    where = f"/api/v1/jobs/{job_id}/files/" + path.format(job_id=job_id)
    reply = world.user.call("GET", where, query)
    assert reply.status == status, reply.body
    assert reply.code in ("file_unknown", "file_missing", "path_unsafe", "query_invalid")


def test_what_is_missing_in_the_store_is_told_by_the_name_that_its_owner_knows(
    world: World,
) -> None:
    job_id = finished(world)
    output = f"output/{job_id}/rank-0/model/w.bin"
    (world.deps.settings.store_dir / "users/someone" / output).unlink()
    world.blob(b"echo hi\n").unlink()
    for path in (output, "run.sh"):
        reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/files/{path}")
        assert (reply.status, reply.code) == (404, "file_missing")
        assert json.loads(reply.body)["error"]["params"] == {"path": path}


def test_an_upload_replaces_the_one_before(world: World) -> None:
    job_id, order = world.placed()
    for data in (b"long one", b"two"):
        assert world.agent.upload(order, "out", data).json() == {"size": len(data)}
    path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/out"
    assert world.raw(path).body == b"two"


@pytest.mark.parametrize("name", ["a b", "数据.csv", "a%2Fb", "line\nbreak", "#?&", ".hidden"])
def test_strange_names_survive_the_way(world: World, name: str) -> None:
    job_id, order = world.placed()
    assert world.agent.upload(order, name, b"x").status == 200
    path = f"output/{job_id}/rank-0/{name}"
    assert path in listed(world, job_id)
    assert world.raw(f"/api/v1/jobs/{job_id}/files/{path}").body == b"x"


HOSTILE: list[tuple[str, dict[str, object], str]] = [
    ("../escape", {}, "path_unsafe"),
    ("a/../../escape", {}, "path_unsafe"),
    ("/etc/cron.d/x", {}, "path_unsafe"),
    ("", {}, "path_unsafe"),
    ("a//b", {}, "path_unsafe"),
    (".", {}, "path_unsafe"),
    ("a\\b", {}, "path_unsafe"),
    ("C:\\x", {}, "path_unsafe"),
    ("x" * 256, {}, "path_long"),
    ("d/" * 2048 + "x", {}, "path_long"),
    ("a\0b", {}, "path_unsafe"),
    ("ok", {"fence": 0}, "fence_stale"),
    ("ok", {"fence": "x"}, "query_invalid"),
    ("ok", {"mtime": 1e300}, "query_invalid"),
    ("ok", {"mtime": "nan"}, "query_invalid"),
    ("ok", {"mtime": -1}, "query_invalid"),
    ("ok", {"area": "work"}, "area_unknown"),
    ("ok", {"area": ".."}, "area_unknown"),
]


@pytest.mark.parametrize(("path", "change", "code"), HOSTILE)
def test_a_hostile_upload_is_refused_and_leaves_nothing(
    world: World, path: str, change: dict[str, Any], code: str
) -> None:
    job_id, order = world.placed()
    reply = world.agent.upload(order, path, b"x", **change)
    assert reply.code == code
    assert reply.status in (400, 404, 409)
    assert listed(world, job_id) == [f"output/{job_id}/"]


def test_a_file_where_a_directory_is_wanted_is_a_conflict(world: World) -> None:
    job_id, order = world.placed()
    assert world.agent.upload(order, "a", b"x").status == 200
    assert world.agent.upload(order, "a/b", b"x").code == "store_path_taken"
    assert listed(world, job_id)[1:] == [f"output/{job_id}/rank-0/a"]


def test_another_user_finds_nothing_anywhere(world: World) -> None:
    job_id = finished(world)
    other = world.caller("another")
    theirs = {"job_id": job_id, "path": "run.sh", "command_id": "0" * 32}
    routes = [r for r in ROUTES if "{job_id}" in r.path and r.access is Access.USER]
    assert len(routes) >= 6
    for route in routes:
        path = route.path.replace(":path", "").format(**theirs)
        body = {"argv": ["true"]} if path.endswith("/commands") else b""
        reply = other.call(route.method, path, body=body)
        assert (reply.status, reply.code) == (404, "job_unknown"), route.path
    assert other.get("/api/v1/jobs")["jobs"] == []
    assert world.user.get("/api/v1/jobs")["jobs"][0]["job_id"] == job_id


def test_a_job_that_never_was_is_unknown_in_the_same_words(world: World) -> None:
    for job_id in ("job-" + "0" * 32, "x", "%", "a" * 5000):
        reply = world.user.call("GET", f"/api/v1/jobs/{job_id}")
        code = "job_reference_unknown" if len(job_id) != 36 else "job_unknown"
        assert (reply.status, reply.code) == (404, code)


def test_jobs_are_listed_in_pages_newest_first(world: World) -> None:
    ids = [world.submit(job_name=f"n{n % 2}") for n in range(5)]
    first = world.user.get("/api/v1/jobs", limit=2)
    assert [row["job_id"] for row in first["jobs"]] == [ids[4], ids[3]]
    second = world.user.get("/api/v1/jobs", limit=2, before=first["next"])
    assert [row["job_id"] for row in second["jobs"]] == [ids[2], ids[1]]
    third = world.user.get("/api/v1/jobs", limit=2, before=second["next"])
    assert ([row["job_id"] for row in third["jobs"]], third["next"]) == ([ids[0]], None)
    named = world.user.get("/api/v1/jobs", name="n1")["jobs"]
    assert [row["job_id"] for row in named] == [ids[3], ids[1]]


def test_jobs_are_listed_by_state(world: World) -> None:
    running, order = world.placed()
    world.agent.start(order)
    waiting = world.submit()
    rows = world.user.get("/api/v1/jobs", state="running,queue")["jobs"]
    assert [row["job_id"] for row in rows] == [running]
    rows = world.user.get("/api/v1/jobs", state="schedule,running")["jobs"]
    assert [row["job_id"] for row in rows] == [waiting, running]


@pytest.mark.parametrize(
    "query",
    [{"state": "asleep"}, {"limit": 0}, {"limit": 1001}, {"before": 10**30}, {"before": "x"}],
)
def test_a_wrong_question_is_told_in_words(world: World, query: dict[str, object]) -> None:
    reply = world.user.call("GET", "/api/v1/jobs", query)
    assert (reply.status, reply.code) in ((400, "state_unknown"), (400, "query_invalid"))


def test_a_piece_beyond_the_end_of_a_file_is_empty(world: World) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "model", b"12345")
    world.agent.log(order, 0, b"log\n")
    path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/model"
    descriptors = open_descriptors()
    for offset in (5, 6, 2**53):
        assert world.raw(path, offset=offset).body == b""
        assert world.log(job_id, offset=offset) == b""
    assert world.raw(path, offset=3).body == b"45"
    # None is left open, when the server has noticed that its callers are gone.
    eventually(lambda: open_descriptors() <= descriptors + 2)


def test_submitted_files_below_a_directory_of_the_name_output_are_listed(world: World) -> None:
    files = world.snapshot({"output/old.txt": b"1", "output-b": b"2", "run.sh": b"3"})
    job_id, order = world.placed(snapshot=files)
    world.agent.upload(order, "model", b"12345")
    assert listed(world, job_id, "output/o") == ["output/old.txt"]
    below = listed(world, job_id, "output/")
    assert below == [f"output/{job_id}/", f"output/{job_id}/rank-0/model", "output/old.txt"]
    assert "output/old.txt" not in listed(world, job_id, f"output/{job_id}")
    reply = world.raw(f"/api/v1/jobs/{job_id}/files/output/old.txt")
    assert (reply.body, reply.headers["x-content-sha256"]) == (b"1", sha256(b"1").hexdigest())
