"""Output files that grow, and the list of them when a worker is over, at a real server."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.testing import Reply
from tests.integration.server.world import World

FIRST, MORE = b"0123456789" * 10_000, b"and more\n"
WHEN = 1_589_710_569


def append(
    world: World, order: dict[str, Any], data: bytes, offset: int, path: str = "events", **more: Any
) -> Reply:
    place = f"/api/v1/agent/replicas/{order['replica']}/files/output/{path}"
    query = {"fence": order["fence"], "offset": offset, "mtime": WHEN} | more
    return world.agent.caller.call("POST", place, query, data)


def listing(world: World, order: dict[str, Any], rows: list[list[Any]], **more: Any) -> Reply:
    place = f"/api/v1/agent/replicas/{order['replica']}/listing"
    body = json.dumps({"files": rows}).encode()
    return world.agent.caller.call("POST", place, {"fence": order["fence"]} | more, body)


def bundle(
    world: World, order: dict[str, Any], files: dict[str, bytes], rest: bytes = b"", **more: Any
) -> Reply:
    place = f"/api/v1/agent/replicas/{order['replica']}/bundle"
    head = {"files": [(name, len(data), WHEN) for name, data in files.items()]}
    body = json.dumps(head).encode() + b"\n" + b"".join(files.values()) + rest
    return world.agent.caller.call("POST", place, {"fence": order["fence"]} | more, body)


def content(world: World, job_id: str, path: str = "events", **query: object) -> bytes:
    return world.raw(f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/{path}", **query).body


def test_what_a_file_grew_by_is_put_behind_it_once(world: World) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "events", FIRST)
    for _ in range(2):
        reply = append(world, order, MORE, len(FIRST))
        assert (reply.status, reply.json()) == (200, {"size": len(FIRST + MORE)})
    assert content(world, job_id) == FIRST + MORE
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert rows[-1]["time"] == "2020-05-17T10:16:09Z"


def test_after_a_lost_answer_only_the_rest_is_put_behind_it(world: World) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "events", FIRST)
    append(world, order, MORE, len(FIRST))
    grown = append(world, order, MORE + b"since", len(FIRST))
    assert (grown.status, grown.json()) == (200, {"size": len(FIRST + MORE) + 5})
    again = append(world, order, MORE, len(FIRST))
    assert (again.status, again.json()) == (200, {"size": len(FIRST + MORE)})
    assert content(world, job_id) == FIRST + MORE + b"since"


@pytest.mark.parametrize("offset", [0, 5, len(FIRST) - 1, len(FIRST) + 1, 2**53])
def test_what_does_not_fit_behind_it_is_refused(world: World, offset: int) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "events", FIRST)
    reply = append(world, order, MORE, offset)
    assert (reply.status, reply.code) == (409, "output_gap")
    assert content(world, job_id) == FIRST


@pytest.mark.parametrize("name", ["b:0", "c:", "C:/weights"])
def test_a_name_with_a_colon_is_stored_listed_and_read(world: World, name: str) -> None:
    job_id, order = world.placed()
    assert world.agent.upload(order, name, b"weights").status == 200
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert rows[-1]["path"] == f"output/{job_id}/rank-0/{name}"
    assert content(world, job_id, name) == b"weights"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("never", 409, "output_gap"),
        ("../../../../server.key", 400, "path_unsafe"),
        ("a//b", 400, "path_unsafe"),
        ("a\\b", 400, "path_unsafe"),
    ],
)
def test_nothing_is_made_by_appending(world: World, path: str, status: int, code: str) -> None:
    _, order = world.placed()
    reply = append(world, order, MORE, 0, path)
    assert (reply.status, reply.code) == (status, code)


def test_an_attempt_that_is_over_adds_nothing(world: World) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "events", FIRST)
    late = {**order, "fence": order["fence"] - 1}
    assert append(world, late, MORE, len(FIRST)).code == "fence_stale"
    assert listing(world, late, []).code == "fence_stale"
    assert content(world, job_id) == FIRST


def test_the_last_list_names_what_is_missing_and_then_the_digests_are_known(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.upload(order, "model", FIRST, mtime=WHEN)
    world.agent.upload(order, "notes", b"n", area="log", mtime=WHEN)
    digest = sha256(FIRST).hexdigest()
    rows: list[list[Any]] = [
        ["output/model", len(FIRST), WHEN, digest],
        ["log/notes", 1, WHEN, ""],
    ]
    lacking = [["output/gone", 3, WHEN, digest], ["output/model", 7, WHEN, digest]]
    assert listing(world, order, lacking).json() == {"missing": ["output/gone", "output/model"]}
    assert known(world, job_id) == {}
    assert listing(world, order, rows).json() == {"missing": []}
    assert known(world, job_id) == {f"output/{job_id}/rank-0/model": digest}
    world.agent.run(order, b"log\n")
    # What was written afterwards is another file.
    world.deps.store.write(f"users/{world.job(job_id).owner}/output/{job_id}/rank-0/model", [FIRST])
    assert known(world, job_id) == {}


def known(world: World, job_id: str) -> dict[str, str]:
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    return {row["path"]: row["sha256"] for row in rows if row.get("sha256")}


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([["../x", 1, 0, ""]], "area_unknown"),
        ([["output/../x", 1, 0, ""]], "path_unsafe"),
        ([["output/x", -1, 0, ""]], "body_invalid"),
        ([["output/x"]], "body_invalid"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(
    world: World, rows: list[list[Any]], code: str
) -> None:
    _, order = world.placed()
    assert listing(world, order, rows).code == code


def test_the_list_goes_with_its_job(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.upload(order, "model", b"m", mtime=WHEN)
    listing(world, order, [["output/model", 1, WHEN, sha256(b"m").hexdigest()]])
    world.agent.run(order, b"log\n")
    owner = world.job(job_id).owner
    assert list(world.deps.store.list(f"users/{owner}/listings/"))
    world.release()
    world.clock.move(days=400)
    assert garbage_collection.collect(world.deps).jobs == 1
    assert not list(world.deps.store.list(f"users/{owner}/listings/"))


def test_pieces_come_with_their_digest_and_their_version(world: World) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "model", FIRST, mtime=WHEN)
    path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/model"
    whole = world.raw(path)
    piece = world.raw(path, offset=10, length=25, digest=1)
    assert piece.body == FIRST[10:35] + sha256(FIRST[10:35]).digest()
    assert piece.headers["content-length"] == str(25 + 32)
    version = piece.headers["x-content-version"]
    assert version == whole.headers["x-content-version"]
    assert version.startswith(f"{len(FIRST)}-2020-05-17T10:16:09Z-")
    world.agent.upload(order, "model", FIRST, mtime=WHEN + 1)
    assert world.raw(path, length=1).headers["x-content-version"] != version
    assert world.raw(path, offset=99**4, digest=1).body == sha256(b"").digest()


def test_a_log_is_the_same_however_long_it_is(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"hello\n")
    path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/log/trainer-0.log"
    version = world.raw(path, digest=1).headers["x-content-version"]
    assert version.startswith("append")
    assert world.raw(path, length=2).body == b"he"
    world.agent.log(order, 6, b"again\n")
    assert world.raw(path, digest=1).headers["x-content-version"] == version


def test_the_log_of_the_next_attempt_is_another_one(world: World) -> None:
    job_id, order = world.placed(max_retries=1)
    world.agent.start(order)
    world.agent.log(order, 0, b"hello\n")
    path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/log/trainer-0.log"
    first = world.raw(path).headers["x-content-version"]
    world.agent.exit(order, 101, log_size=6)
    world.clock.move(minutes=10)
    world.plan()
    world.agent.run(world.agent.order(job_id), b"hello again\n")
    assert world.raw(path).body == b"hello again\n"
    assert world.raw(path).headers["x-content-version"] != first
    aside = path.replace("/log/trainer", "/log/attempt-1/trainer")
    assert world.raw(aside).headers["x-content-version"] == "append"


def test_what_a_job_was_asked_to_be(world: World) -> None:
    job_id = world.submit(env={"A": "1"}, memory=2**30)
    spec = world.user.get(f"/api/v1/jobs/{job_id}/spec")["spec"]
    assert (spec["env"], spec["memory"]) == ({"A": "1"}, 2**30)
    files = world.user.get(f"/api/v1/jobs/{job_id}/snapshot")
    assert files["id"] == spec["snapshot"]
    assert [row[0] for row in files["entries"]] == ["run.sh"]
    other = world.caller("mallory")
    for what in ("spec", "snapshot"):
        assert other.call("GET", f"/api/v1/jobs/{job_id}/{what}").status == 404


def test_many_small_files_come_in_one_request(world: World) -> None:
    job_id, order = world.placed()
    files = {f"output/{name}": name.encode() * 3 for name in ("a", "b/c", "b:0", "\n")}
    for _ in range(2):
        reply = bundle(world, order, {**files, "output/empty": b""})
        assert (reply.status, reply.json()) == (200, {"missing": []})
    assert content(world, job_id, "b/c") == b"b/cb/cb/c"
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert {row["time"] for row in rows[1:]} == {"2020-05-17T10:16:09Z"}
    assert len(rows) == 6


def test_what_cannot_be_kept_of_many_is_named_and_the_rest_is_kept(world: World) -> None:
    job_id, order = world.placed()
    bad = ["output/../../x", "output//etc/passwd", "elsewhere/x", "output/a\\b", "output/\0"]
    files = {"output/first": b"1", **dict.fromkeys(bad, b"bad"), "output/last": b"2"}
    assert bundle(world, order, files).json() == {"missing": bad}
    assert content(world, job_id, "first") + content(world, job_id, "last") == b"12"


def test_a_bundle_that_is_not_what_it_says_brings_nothing(world: World) -> None:
    job_id, order = world.placed()
    reply = bundle(world, order, {"output/a": b"12"}, b"3")
    assert (reply.status, reply.code) == (400, "bundle_length")
    reply = bundle(world, order, {"output/a": b"12"}, fence=order["fence"] + 1)
    assert (reply.status, reply.code) == (409, "fence_stale")
    place = f"/api/v1/agent/replicas/{order['replica']}/bundle"
    for body in (b"", b"\n", b"{}", b'{"files": [["output/a", 1]]}\nx', b"x" * 5_000_000):
        reply = world.agent.caller.call("POST", place, {"fence": order["fence"]}, body)
        assert reply.status in (400, 413)
    rows = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert [row["path"] for row in rows] == [f"output/{job_id}/"]
