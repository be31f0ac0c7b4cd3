"""`/metrics`: what it reports after a job, and the bearer tokens that may read it, and only it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paddlecloud.db.tables.users import UserRole
from paddlecloud.server.http.routing import Access
from paddlecloud.server.route_table import ROUTES
from paddlecloud.testing import Reply, SignedCaller, exchange
from tests.integration.server.world import World


@pytest.fixture
def admin(world: World) -> SignedCaller:
    return world.caller("boss", role=UserRole.ADMIN)


def ask(world: World, token: str, method: str = "GET", path: str = "/metrics") -> Reply:
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {token}"}
    return exchange("127.0.0.1", world.stage.port, method, path, headers)


def create(admin: SignedCaller, name: str = "prometheus") -> dict[str, str]:
    made: dict[str, str] = admin.post("/api/v1/admin/tokens", {"scope": "metrics", "name": name})
    return made


def value(reply: Reply, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(reply.body.decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None


def test_a_job_is_seen_in_every_histogram(world: World, admin: SignedCaller) -> None:
    token = create(admin)["token"]
    job = world.submit()
    world.clock.move(seconds=3)
    world.plan()
    order = world.agent.order(job)
    world.clock.move(seconds=1)
    world.agent.start(order)
    world.agent.start(order)  # a report that is sent again counts once
    world.agent.exit(order)
    found = ask(world, token)
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name, seconds in (("queue_wait", 3.0), ("submit_to_start", 4.0)):
        assert value(found, f"paddlecloud_{name}_seconds_count", pool="local") == 1, name
        assert value(found, f"paddlecloud_{name}_seconds_sum", pool="local") == seconds, name
    assert (value(found, "paddlecloud_plan_seconds_count") or 0) >= 1
    submit = {"method": "POST", "route": "/api/v1/jobs", "status_class": "2xx"}
    assert value(found, "paddlecloud_request_seconds_count", **submit) == 1
    assert value(found, "paddlecloud_jobs", state="success") == 1
    assert value(found, "paddlecloud_agents", pool="other", state="connected") == 1
    assert value(found, "paddlecloud_agents", pool="local", state="silent") == 0
    world.clock.move(minutes=2)
    found = ask(world, token)
    assert value(found, "paddlecloud_agents", pool="other", state="silent") == 1


def test_a_token_reads_metrics_and_nothing_else(world: World, admin: SignedCaller) -> None:
    made = create(admin)
    assert ask(world, made["token"]).status == 200
    assert ask(world, made["token"].upper()).code == "auth_bearer_unknown"
    assert ask(world, made["ak"]).code == "auth_bearer_unknown"
    assert ask(world, "").code == "auth_bearer_unknown"
    assert ask(world, "\u00ff" * 5000).code == "auth_bearer_unknown"
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "").replace(":path", "")
        if route.access is Access.OPEN or path == "/metrics":
            continue
        reply = ask(world, made["token"], route.method, path)
        assert (reply.status, reply.code) == (401, "auth_metrics_only"), path


def test_a_token_is_stored_as_a_digest_and_audited(world: World, admin: SignedCaller) -> None:
    made = create(admin)
    files = (world.deps.settings.server_dir).glob("paddlecloud.db*")
    stored = b"".join(path.read_bytes() for path in files)
    assert made["ak"].encode() in stored
    assert made["token"].encode() not in stored
    assert made["token"].removeprefix("pcm-").encode() not in stored
    (event, *_) = admin.get("/api/v1/admin/audit")["events"]
    assert (event["action"], event["detail"]["scope"]) == ("token.create", "metrics")
    assert made["token"] not in str(event)


def test_a_token_is_listed_and_revoked_like_others(world: World, admin: SignedCaller) -> None:
    made = create(admin)
    assert ask(world, made["token"]).status == 200
    listed = {row["ak"]: row for row in admin.get("/api/v1/admin/tokens")["tokens"]}
    row = listed[made["ak"]]
    assert (row["user_id"], row["name"], row["scope"]) == ("", "prometheus", "metrics")
    assert row["last_used_at"] is not None
    assert listed.keys() > {made["ak"]}, "those of users too"
    assert "token" not in row
    path = f"/api/v1/admin/tokens/{made['ak']}/revoke"
    assert admin.post(path)["revoked_at"] is not None
    assert ask(world, made["token"]).code == "auth_bearer_unknown"
    assert admin.post(path)["revoked_at"] is not None, "again is no error"
    tokens = admin.get("/api/v1/admin/tokens")["tokens"]
    assert made["ak"] not in {row["ak"] for row in tokens}
    tokens = admin.get("/api/v1/admin/tokens", revoked=1)["tokens"]
    assert made["ak"] in {row["ak"] for row in tokens}


def test_only_admins_deal_with_them(world: World, admin: SignedCaller) -> None:
    made = create(admin)
    asked = {"scope": "metrics", "name": "mine"}
    refused = world.user.call("POST", "/api/v1/admin/tokens", body=asked)
    assert (refused.status, refused.code) == (403, "auth_admin")
    assert made["ak"] not in str(world.user.get("/api/v1/tokens"))
    refused = world.user.call("POST", f"/api/v1/tokens/{made['ak']}/revoke")
    assert (refused.status, refused.code) == (404, "token_unknown")
    wrong = admin.call("POST", "/api/v1/admin/tokens", body={"scope": "full", "name": ""})
    assert wrong.status == 400


def test_there_is_a_limit(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlecloud.server.services.accounts.tokens.MAX_TOKENS", 1)
    create(admin)
    refused = admin.call("POST", "/api/v1/admin/tokens", body={"scope": "metrics"})
    assert (refused.status, refused.code) == (409, "bearer_tokens_too_many")
