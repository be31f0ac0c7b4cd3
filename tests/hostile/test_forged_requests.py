"""Requests by hand: replayed, altered, doubled, cut, and in the name of others."""

from __future__ import annotations

import json
import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.http.auth import secret_of
from paddlecloud.testing import Reply, ScriptedAgent, SignedCaller, exchange
from tests.hostile.target_server import HOST, TargetServer, a_job, prepared, send, target_server
from tests.integration.server.world import a_submit, eventually, packed
from tests.live_files import files_below
from tests.postgres import fresh_database

WHO = "/api/v1/whoami"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetServer]:
    with target_server(tmp_path_factory.mktemp("requests")) as made:
        yield made
        assert "Traceback" not in made.journal()


@pytest.fixture
def alice(site: TargetServer) -> SignedCaller:
    return site.people["alice"]


def signed(
    caller: SignedCaller, method: str, path: str, query: str = "", body: bytes = b"", **at: float
) -> dict[str, str]:
    clock = caller.clock() + at.get("ahead", 0.0)
    moved = SignedCaller(
        host=caller.host, port=caller.port, ak=caller.ak, sk=caller.sk, clock=lambda: clock
    )
    return moved.headers(method, path, query, body)


def fire(
    caller: SignedCaller, method: str, target: str, headers: dict[str, str], body: bytes = b""
) -> Reply:
    return exchange(caller.host, caller.port, method, target, headers, body)


# -- the same request again, late, early, or changed ----------------------------------------------


def test_a_request_counts_once(alice: SignedCaller) -> None:
    headers = signed(alice, "GET", WHO)
    assert fire(alice, "GET", WHO, headers).status == 200
    assert fire(alice, "GET", WHO, headers).code == "auth_replay"


@pytest.mark.slow
def test_a_request_counts_once_on_all_servers_together(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    database, key = fresh_database(), secrets.token_hex(32)
    with target_server(
        tmp_path_factory.mktemp("one"), database=database, top=f'key = "{key}"'
    ) as first:
        second = prepared(tmp_path_factory.mktemp("two"), database=database, top=f'key = "{key}"')
        try:
            second.server.start()
            alice = first.people["alice"]
            headers = signed(alice, "GET", WHO)
            assert fire(alice, "GET", WHO, headers).status == 200
            for blank in ("", " ", "\t"):
                disguised = headers | {"x-bce-nonce": headers["x-bce-nonce"] + blank}
                again = exchange(HOST, second.server.port, "GET", WHO, disguised)
                assert again.code == "auth_replay"
            fresh = signed(alice, "GET", WHO)
            assert exchange(HOST, second.server.port, "GET", WHO, fresh).status == 200
        finally:
            second.server.close()


@pytest.mark.parametrize(
    ("ahead", "want"),
    [(14 * 60, ""), (16 * 60, "auth_future"), (-29 * 60, ""), (-31 * 60, "auth_expired")],
)
def test_a_clock_may_be_wrong_by_so_much(alice: SignedCaller, ahead: float, want: str) -> None:
    headers = signed(alice, "GET", WHO, ahead=ahead)
    assert fire(alice, "GET", WHO, headers).code == want
    if not want:
        assert fire(alice, "GET", WHO, headers).code == "auth_replay"


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h | {"x-bce-nonce": secrets.token_hex(16)},
        lambda h: h | {"host": "localhost:1"},
        lambda h: h | {"x-bce-date": "2020-01-01T00:00:00Z"},
        lambda h: h | {"x-bce-content-sha256": "0" * 64},
        lambda h: {k: v for k, v in h.items() if k != "x-bce-nonce"},
        lambda h: h | {"authorization": h["authorization"].replace("/1800/", "/1799/")},
        lambda h: h | {"authorization": h["authorization"].replace("host;", "")},
        lambda h: h | {"authorization": h["authorization"].upper()},
        lambda h: h | {"authorization": h["authorization"] + "/"},
    ],
)
def test_a_changed_header_is_no_longer_signed(
    alice: SignedCaller, change: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    headers = signed(alice, "GET", WHO)
    assert fire(alice, "GET", WHO, change(headers)).status == 401


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/api/v1/jobs?limit=2", b""),
        ("GET", "/api/v1/jobs?limit=1&before=3", b""),
        ("GET", "/api/v1/jobs", b""),
        ("GET", "/api/v1/./jobs?limit=1", b""),
        ("GET", "/api/v1/%6aobs?limit=1", b""),
        ("POST", "/api/v1/jobs?limit=1", b""),
        ("GET", "/api/v1/jobs?limit=1", b"x"),
    ],
)
def test_another_request_under_the_same_signature(
    alice: SignedCaller, method: str, target: str, body: bytes
) -> None:
    headers = signed(alice, "GET", "/api/v1/jobs", "limit=1")
    assert fire(alice, method, target, headers, body).status in (401, 404)


def test_a_parameter_given_twice_is_refused(alice: SignedCaller) -> None:
    """The order of equal names is not signed, so who turns them round must gain nothing."""
    assert send(alice, "GET", "/api/v1/jobs", "limit=1&limit=2").code == "query_invalid"


def test_nobody_else_suffers_from_a_nonce_that_is_no_text(
    site: TargetServer, alice: SignedCaller
) -> None:
    bad = send(alice, "GET", WHO, headers={"x-bce-nonce": "n\udcff"})
    assert bad.code == "auth_nonce"
    nonce = secrets.token_hex(16)
    assert send(alice, "GET", WHO, headers={"x-bce-nonce": nonce}).status == 200

    def kept() -> bool:
        with site.rows() as ask:
            return bool(ask(f"select 1 from nonces where nonce = '{nonce}'"))

    eventually(kept)


# -- what HTTP lets one say twice or not at all ---------------------------------------------------


def wire(site: TargetServer, text: bytes) -> bytes:
    """These bytes and what comes back until the server closes."""
    with closing(socket.create_connection((HOST, site.server.port), 20)) as link:
        link.sendall(text)
        link.shutdown(socket.SHUT_WR)
        found = b""
        while piece := link.recv(65536):
            found += piece
        return found


def head(method: str, target: str, headers: dict[str, str], *more: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), *more]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode()


@pytest.mark.parametrize("name", ["host", "authorization", "x-bce-nonce", "x-bce-content-sha256"])
def test_a_signed_header_must_not_come_twice(
    site: TargetServer, alice: SignedCaller, name: str
) -> None:
    headers = signed(alice, "GET", WHO)
    answer = wire(site, head("GET", WHO, headers, f"{name}: {headers[name]}"))
    assert b" 401 " in answer.split(b"\r\n")[0] or b" 400 " in answer.split(b"\r\n")[0]


def test_two_lengths_make_no_second_request(site: TargetServer, alice: SignedCaller) -> None:
    hidden = head("GET", "/healthz", {"host": f"{HOST}:{site.server.port}"})
    body = b"0\r\n\r\n" + hidden
    headers = signed(alice, "POST", "/api/v1/snapshots", "", body)
    both = head(
        "POST", "/api/v1/snapshots", headers, f"content-length: {len(body)}",
        "transfer-encoding: chunked",
    )  # fmt: skip
    answer = wire(site, both + body)
    assert b'"ok":true' not in answer
    assert b" 200 " not in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "target",
    ["/api/v1/jobs/%00", "/api/v1/jobs/..%2f..", "//api/v1/jobs", "/api/v1/jobs/", "/api//v1/jobs",
     "/API/v1/jobs", "/api/v1/jobs%2f", "/api/v1/jobs/%2e%2e/whoami", "/api/v1/jobs/%c0%ae%c0%ae",
     "/api/v1/jobs/%", "/api/v1/jobs/%zz", "/" + "a" * 60_000],
)  # fmt: skip
def test_no_path_is_another_path(alice: SignedCaller, target: str) -> None:
    reply = send(alice, "GET", target)
    assert reply.status in (400, 401, 404, 431), reply.body
    assert b"user_id" not in reply.body


@pytest.mark.parametrize(
    "name",
    ["../../../etc/passwd", "output/../../x", "/etc/passwd", "a//b", "a\\..\\b", "a\0b", "./x",
     "a/" * 250 + "b", "x" * 300],
)  # fmt: skip
def test_no_name_of_a_file_leads_out(site: TargetServer, alice: SignedCaller, name: str) -> None:
    place = f"/api/v1/jobs/{site.things['job_id']}/files/"
    assert send(alice, "GET", place + bce_auth.quote(name, "/")).status in (400, 404)
    agent, before = site.agent, site.counts()
    assert agent is not None
    files = sorted(files_below(site.home))
    where = f"/api/v1/agent/replicas/{site.order['replica']}/files/output/"
    query = f"fence={site.order['fence']}"
    reply = send(agent.caller, "PUT", where + bce_auth.quote(name, "/"), query, b"evil")
    assert reply.status == 400, reply.body
    assert site.counts() == before
    assert sorted(files_below(site.home)) == files


def test_a_drive_is_a_name_like_any_among_the_files_of_a_job(
    site: TargetServer, alice: SignedCaller
) -> None:
    place = f"/api/v1/jobs/{site.things['job_id']}/files/"
    agent = site.agent
    assert agent is not None
    before = set(files_below(site.home))
    where = f"/api/v1/agent/replicas/{site.order['replica']}/files/output/C%3A/x"
    reply = send(agent.caller, "PUT", where, f"fence={site.order['fence']}", b"mine")
    assert reply.status == 200, reply.body
    new = {path for path in files_below(site.home) if path.parent.name == "C:"} - before
    assert [path.read_bytes() for path in new] == [b"mine"]
    own = f"output/{site.things['job_id']}/"
    assert all(own in path.as_posix() for path in new)
    assert send(alice, "GET", f"{place}C%3A/x").status == 404
    new.pop().unlink()


def test_what_lies_deep_is_refused_before_it_hurts(site: TargetServer, alice: SignedCaller) -> None:
    entry = ["d/" * 200 + "f", "file", 0, "0" * 64, 0, ""]
    reply = send(alice, "POST", "/api/v1/snapshots", body=json.dumps({"entries": [entry]}).encode())
    assert reply.code == "path_deep"


# -- what belongs to others -----------------------------------------------------------------------


def test_another_agent_gets_nothing_of_a_replica(site: TargetServer) -> None:
    """Keys of another machine, and everything else right: replica, fence, snapshot, content."""
    other = another_agent(site)
    replica, fence = site.order["replica"], site.order["fence"]
    things, query = site.things, {"replica": replica}
    before = site.counts()
    asked = [
        other.caller.call("GET", f"/api/v1/agent/snapshots/{things['snapshot_id']}", query),
        other.caller.call("GET", f"/api/v1/agent/blobs/{things['sha256']}", query),
        other.caller.call("GET", f"/api/v1/agent/replicas/{replica}/outputs"),
        other.caller.call("GET", f"/api/v1/agent/replicas/{replica}/outputs/model"),
    ]
    assert [(reply.status, reply.code) for reply in asked] == [(404, "replica_unknown")] * 4
    assert other.upload(site.order, "model", b"evil").code == "fence_stale"
    told = other.report(
        {"replica": replica, "fence": fence, "lost": True},
        {"replica": replica, "fence": fence, "log": {"offset": 6, "length": 4}},
        log=b"evil",
    )
    assert told == {"acks": [], "stale": [replica, replica]}
    poll = {"agent": str(site.agent and site.agent.name), "boot": "b", "version": "0", "cursor": 0}
    poll |= {"wait": 0, "capacity": {"cpu": 1, "memory": 1}}
    assert other.caller.call("POST", "/api/v1/agent/poll", body=poll).code == "agent_name"
    assert site.people["alice"].call("GET", logs(site)).body == b"hello\n"
    assert site.counts() == before


def test_an_agent_reads_only_what_its_replica_was_given(site: TargetServer) -> None:
    """A content of another user, whose digest is known, under a replica of one's own."""
    data = secrets.token_bytes(40)
    mine = a_job(site, "bob", start_cmd="true")
    assert mine
    bob, agent = site.people["bob"], site.agent
    assert agent is not None
    bob.post("/api/v1/blobs", packed(data))
    sha256 = packed(data)[:32].hex()
    query = {"replica": site.order["replica"]}
    assert agent.caller.call("GET", f"/api/v1/agent/blobs/{sha256}", query).status == 404
    entry = ["f", "file", len(data), sha256, 0, ""]
    files = bob.post("/api/v1/snapshots", {"entries": [entry]})["id"]
    where = f"/api/v1/agent/snapshots/{files}"
    assert agent.caller.call("GET", where, query).status == 404
    alice = site.people["alice"]
    spec = {"start_cmd": "cat f", "snapshot": files}
    assert alice.call("POST", "/api/v1/jobs", body=a_submit(spec)).code == "snapshot_missing"
    missing = alice.post("/api/v1/snapshots", {"entries": [entry]})["missing"]
    assert missing == [sha256], "what another user has is not told"


def test_a_job_of_another_is_nobodys(site: TargetServer) -> None:
    job, bob = site.things["job_id"], site.people["bob"]
    for method, rest in [
        ("GET", ""), ("GET", "/logs"), ("GET", "/files"), ("GET", "/files/run.sh"),
        ("GET", f"/files/output/{job}/rank-0/model"), ("GET", "/history"), ("POST", "/kill"),
    ]:  # fmt: skip
        reply = bob.call(method, f"/api/v1/jobs/{job}{rest}")
        assert (reply.status, reply.code) == (404, "job_unknown"), rest
    own = a_job(site, "bob")
    through = bob.call("GET", f"/api/v1/jobs/{own}/files/output/{job}/rank-0/model")
    assert through.status == 404
    assert bob.call("POST", f"/api/v1/tokens/{site.things['ak']}/revoke").code == "token_unknown"
    key = secrets.token_hex(16)
    alice_job = site.people["alice"].post("/api/v1/jobs", a_submit(_spec(site), key))["job"]
    bobs = bob.call("POST", "/api/v1/jobs", body=a_submit(_spec(site), key))
    assert bobs.status != 200 or bobs.json()["job"]["job_id"] != alice_job["job_id"]


def _spec(site: TargetServer) -> dict[str, Any]:
    return {"start_cmd": "sh run.sh", "snapshot": site.things["snapshot_id"]}


def logs(site: TargetServer) -> str:
    return f"/api/v1/jobs/{site.things['job_id']}/logs"


def another_agent(site: TargetServer) -> ScriptedAgent:
    """An agent of another machine: no route makes one, so its key is written past the server."""
    ak = secrets.token_hex(16)
    key = bytes.fromhex((site.home / "server" / "server.key").read_text().strip())
    path = site.home / "server" / "paddlecloud.db"
    with closing(sqlite3.connect(path, timeout=20)) as lite, lite:
        lite.execute(
            "insert into agent_keys (ak, agent, node, pool, created_at)"
            " values (?, 'other', 'other', 'local', 0)",
            (ak,),
        )
    caller = SignedCaller(host=HOST, port=site.server.port, ak=ak, sk=secret_of(key, ak))
    return ScriptedAgent(caller=caller, name="other")
