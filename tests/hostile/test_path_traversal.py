"""Hostile names and broken streams on every route that takes a path or a name: nothing outside is
read, nothing outside is written, and no server falls over."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import compress

import pytest

from paddlecloud.server.http.routing import Access
from paddlecloud.server.route_table import ROUTES
from paddlecloud.testing import Reply, SignedCaller
from tests.hostile.target_server import send
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, packed

SECRET = b"what nobody may see"
ONE = b"echo hi\n"
DIGEST = hashlib.sha256(ONE).hexdigest()

LEADING_OUT = (
    "..",
    "../x",
    "../../x",
    "../../../../../../../../etc/passwd",
    "a/..",
    "a/../..",
    "a/../../x",
    "a/b/../../../x",
    "./x",
    "a/./x",
    "a//x",
    "/etc/passwd",
    "//etc/passwd",
    "///x",
    "x/",
    ".",
    "./",
    "../someone2/secret",
    "../someone2",
    "../../users/someone2/secret",
    "output/../../someone2/secret",
    "..\\x",
    "..\\..\\x",
    "a\\..\\..\\x",
    "..\\../x",
    "\\\\host\\share\\x",
    "\\x",
    "C:\\x",
    "Z:/../x",
    "a\0b",
    "\0",
    "../x\0.txt",
    "a" * 256,
    "d/" * 2100 + "x",
    "d/" * 201 + "x",
)
"""No snapshot may hold one of these."""
STRANGE = (
    "%2e%2e/x",
    "%2e%2e%2fx",
    "..%2f..%2fx",
    "%252e%252e%252fx",
    "%25252e%25252e%25252fx",
    "..%c0%afx",
    "..%00/x",
    "%5c..%5cx",
    "．．/x",
    "..;/x",
    "..../x",
    ".../x",
    ".. /x",
    " ../x",
    "~root/x",
    "~/x",
    "$HOME/x",
    "`id`",
    "$(id)",
    "a\nb",
    "a\r\nb",
    "\x7f\x1b[2J",
    "CON",
    "nul.txt",
    "aux/x",
    "com1:",
    "C:x",
    "c:/x",
    "file:/x",
    "http:/x",
    ".tmp/x",
    ".times/x",
    "users/someone2/secret",
    "RUN.SH",
    "Run.sh",
    "\u202egnp.sh",
    "e\u0301",
    "\u00e9",
    "-rf",
    "x\udcffy",
    "\ud800",
)
"""Names that some system or some decoder would read otherwise; ours takes them as they are."""
NAMES = LEADING_OUT + STRANGE


def test_there_are_enough_of_them() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 60


@pytest.fixture
def place(make_world: MakeWorld) -> Iterator[tuple[World, dict[str, str]]]:
    """A running job, with secrets wherever a path could lead; nothing may change around it."""
    world = make_world()
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"hello\n")
    assert world.agent.upload(order, "model", b"weights").status == 200
    store = world.deps.settings.store_dir
    for outside in ("users/someone2/secret", "users/x", "x", "../x", "../secret", "../server/x"):
        (store / outside).parent.mkdir(parents=True, exist_ok=True)
        (store / outside).write_bytes(SECRET)
    before = outside_of(world)
    yield (
        world,
        {
            "job_id": job_id,
            "replica": str(order["replica"]),
            "area": "output",
            "path": "model",
            "sha256": DIGEST,
            "snapshot_id": str(world.job(job_id).spec.snapshot),
            "number": "1",
            "command_id": "0" * 32,
            "user_id": "someone",
            "ak": world.user.ak,
        },
    )
    assert outside_of(world) == before


def outside_of(world: World) -> dict[str, bytes]:
    """Every file but the owner's own, the database and what is being written."""
    store = world.deps.settings.store_dir
    own = (store / "users" / "someone", store / ".tmp", store / ".times")
    found = {}
    for above, _, names in os.walk(world.deps.settings.home):
        for path in (Path(above) / name for name in names):
            database = path.name.startswith("paddlecloud.db")
            if not database and not any(path.is_relative_to(each) for each in own):
                found[str(path)] = path.read_bytes()
    return found


def text_of(name: str, twice: bool = False) -> str:
    """As a client would write it into a path, so that slashes and all arrive."""
    once = quote(name.encode("utf-8", "surrogatepass"), safe="")
    return quote(once, safe="") if twice else once


def check(reply: Reply, what: object) -> None:
    assert reply.status < 500, (what, reply.status, reply.body[:300])
    assert SECRET not in reply.body, what


def ways(path: str, name: str, things: dict[str, str], placeholder: str) -> Iterator[str]:
    """The path of a route with a name in the place of one parameter: as it is, and quoted."""
    forms = {text_of(name), text_of(name, twice=True), quote(name.encode("utf-8", "replace"), "/")}
    for form in sorted(forms):
        filled = path.replace(placeholder, form if form else "%2e")
        for key, value in things.items():
            filled = filled.replace(f"{{{key}:path}}", value).replace(f"{{{key}}}", value)
        yield filled


def routes_with(kind: str) -> list[Any]:
    return [route for route in ROUTES if (":path}" in route.path) is (kind == "path")]


def caller_for(world: World, access: Access) -> SignedCaller:
    return world.agent.caller if access is Access.AGENT else world.user


@pytest.mark.parametrize("names", [NAMES[: len(NAMES) // 2], NAMES[len(NAMES) // 2 :]])
def test_in_the_path_of_a_file(place: tuple[World, dict[str, str]], names: tuple[str, ...]) -> None:
    world, things = place
    routes = routes_with("path")
    assert len(routes) >= 3
    for route in routes:
        placeholder = route.path[route.path.rindex("{") :]
        for name in names:
            for target in ways(route.path, name, things, placeholder):
                body = b"" if route.method == "GET" else SECRET
                caller = caller_for(world, route.access)
                check(send(caller, route.method, target, body=body), (route.path, name))


def test_in_the_place_of_every_other_name(place: tuple[World, dict[str, str]]) -> None:
    world, things = place
    for route in ROUTES:
        wanted = [part for part in route.path.split("/") if part.startswith("{")]
        for placeholder in wanted:
            if ":path" in placeholder or route.access is Access.OPEN:
                continue
            for name in ("..", "../x", "a/../../x", "%2e%2e%2fx", "a\0b", "x" * 300, "..\\x"):
                for target in ways(route.path, name, things, placeholder):
                    caller = caller_for(world, route.access)
                    body = b"" if route.method == "GET" else b"{}"
                    check(send(caller, route.method, target, body=body), (route.path, name))


def test_in_a_snapshot(make_world: MakeWorld) -> None:
    """As the path of a file, of a directory, of a link, and as what a link points to. On the
    embedded server a link may lead out: its jobs may read all that its only user may."""
    world = make_world(change=lambda settings: replace(settings, team=True))
    for name in NAMES:
        try_in_a_snapshot(world, name)


def try_in_a_snapshot(world: World, name: str) -> None:
    rows = [
        [name, "file", len(ONE), DIGEST, 0, ""],
        [name, "dir", 0, "", 0, ""],
        [name, "link", 0, "", 0, "run.sh"],
    ]
    for row in rows:
        reply = offered(world, row)
        check(reply, row)
        if name in LEADING_OUT:
            assert reply.status == 400, (row, reply.body[:200])
    reply = offered(world, ["sub/link", "link", 0, "", 0, name])
    check(reply, name)
    if name.replace("\\", "/").startswith(("../..", "/", "//")) or "\0" in name or "\\" in name:
        assert reply.status == 400, (name, reply.body[:200])


def offered(world: World, *rows: list[Any]) -> Reply:
    body = json.dumps({"entries": rows}).encode()
    return send(world.user, "POST", "/api/v1/snapshots", body=body)


NO_SNAPSHOT: list[list[list[Any]]] = [
    [["a", "file", 8, DIGEST, 0, ""], ["a", "dir", 0, "", 0, ""]],
    [["a", "file", 8, DIGEST, 0, ""], ["a/b", "file", 8, DIGEST, 0, ""]],
    [["a", "link", 0, "", 0, "b"], ["a/b", "file", 8, DIGEST, 0, ""]],
    [["a", "link", 0, "", 0, "."], ["a/../../b", "file", 8, DIGEST, 0, ""]],
    [["a", "device", 0, "", 0, ""]],
    [["a", "fifo", 0, "", 0, ""]],
    [["a", "hardlink", 0, "", 0, "b"]],
    [["a", "file", -1, DIGEST, 0, ""]],
    [["a", "file", 2**70, DIGEST, 0, ""]],
    [["a", "file", 8, "../../x", 0, ""]],
    [["a", "file", 8, DIGEST.upper(), 0, ""]],
    [["a", "file", 8, "", 0, ""]],
    [["a", "link", 0, "", 0, ""]],
    [["a"]],
]


def test_rows_that_are_no_snapshot(world: World) -> None:
    for rows in NO_SNAPSHOT:
        reply = offered(world, *rows)
        assert reply.status == 400, (rows, reply.body)


def test_names_that_differ_in_case_are_two(world: World) -> None:
    assert (
        offered(world, ["a", "file", 8, DIGEST, 0, ""], ["A", "file", 8, DIGEST, 0, ""]).status
        == 200
    )


GOOD = packed(ONE)


BROKEN = [
    b"x",
    GOOD[:39],
    GOOD[:40],
    GOOD[:-1],
    GOOD + b"x",
    GOOD + GOOD[:41],
    GOOD[:-1] + b"!",
    bytes(32) + GOOD[32:],
    GOOD[:32] + (2**64 - 1).to_bytes(8, "big") + ONE,
    GOOD[:32] + (2**62).to_bytes(8, "big") + ONE,
    GOOD[:32] + (7).to_bytes(8, "big") + ONE,
    GOOD[:32] + (0).to_bytes(8, "big"),
    b"PK\3\4" + bytes(60),
    b"\x1f\x8b\x08" + bytes(60),
    b"../../x\0" + bytes(504) + b"ustar" + bytes(600),
]


def test_streams_that_are_broken(world: World) -> None:
    name = f"users/someone/blobs/{DIGEST[:2]}/{DIGEST}"
    for stream in BROKEN:
        reply = send(world.user, "POST", "/api/v1/blobs", body=stream)
        assert reply.status == 400, (stream, reply.body)
        assert {stat.path for stat in world.deps.store.list("users/")} <= {name}, stream
        assert list((world.deps.settings.store_dir / ".tmp").iterdir()) == []
    assert send(world.user, "POST", "/api/v1/blobs", body=GOOD).status == 200


def test_a_compressed_body_that_is_none(world: World) -> None:
    for body in (b"not deflate", b"x\x9c\x03", b"x\x9c\x03\x00\x00\x00\x00\x01"):
        assert compressed(world, body).status == 400, body


def test_a_compressed_body_that_grows_without_end(world: World) -> None:
    bomb = compress(bytes(64 * 1024 * 1024), 1)
    assert len(bomb) < 400_000
    assert compressed(world, bomb).status == 413


def compressed(world: World, body: bytes) -> Reply:
    headers = {"content-encoding": "deflate"}
    return send(world.user, "POST", "/api/v1/snapshots", body=body, headers=headers)
