"""Users, keys and who changed them, over HTTP as admins and people do it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import audit, outbox, tokens
from paddlecloud.db.tables.tokens import Origin
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    TooMany,
    Unauthenticated,
)
from paddlecloud.server.events import SCHEDULE_CHANNEL
from paddlecloud.server.http.app import App
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.services.accounts import tokens as token_service
from paddlecloud.server.services.accounts.plans import PLANS
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.settings.values import Retention
from paddlecloud.testing import Reply, SignedCaller, exchange
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, eventually

USERS = "/api/v1/admin/users"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(change=a_team())


def a_team(mail: str = "mail.invalid", **rules: Any) -> Any:
    """Settings of a team's server; `rules` are those of [tokens]."""

    def change(settings: Any) -> Any:
        return replace(
            settings,
            team=True,
            default_plan="free",
            mail=replace(settings.mail, host=mail),
            tokens=replace(settings.tokens, **rules),
        )

    return change


def an_admin(world: World) -> SignedCaller:
    return world.caller("chief", role=UserRole.ADMIN)


def with_keys(world: World, made: dict[str, Any]) -> SignedCaller:
    return replace(world.user, ak=made["ak"], sk=made["sk"])


def gen_token(world: World, email: object, **more: object) -> Reply:
    """Asked as somebody without any keys does."""
    body = json.dumps({"email": email, **more}).encode()
    headers = {"host": "localhost", "content-type": "application/json"}
    where = ("127.0.0.1", world.stage.port, "POST", "/api/v1/gen_token")
    return exchange(*where, headers, body)


def mailed(world: World) -> list[outbox.Outgoing]:
    def read(tx: Tx) -> list[outbox.Outgoing | None]:
        rows = tx.all("select id from outbox order by created_at, id")
        return [outbox.get(tx, id_) for (id_,) in rows]

    return [row for row in world.deps.db.read(read) if row is not None]


def pair(world: World, row: outbox.Outgoing) -> SignedCaller:
    """The keys that the reader of a mail has."""
    ak = str(row.params["ak"])
    return replace(world.user, ak=ak, sk=secret_of(world.deps.server_key, ak))


def actions(world: World) -> list[tuple[str, str, str]]:
    rows = world.deps.db.read(lambda tx: audit.listed(tx))
    return [(row.actor, row.action, row.target) for row in reversed(rows)]


def test_a_user_is_made_shown_listed_and_changed(world: World) -> None:
    admin = an_admin(world)
    body = {"user_id": "alice", "email": "Alice@Example.com", "plan": "unlimited", "lang": "en"}
    made = admin.post(USERS, body)
    assert made["email"] == "alice@example.com"
    assert (made["role"], made["plan"], made["disabled"]) == ("user", "unlimited", False)
    assert admin.get(f"{USERS}/alice") == made
    listed = admin.get(USERS)["users"]
    assert [user["user_id"] for user in listed] == ["alice", "chief", "someone"]
    changed = admin.post(f"{USERS}/alice", {"role": "readonly", "plan": "", "email": ""})
    assert (changed["role"], changed["plan"], changed["email"]) == ("readonly", "free", None)
    assert changed["lang"] == "en"


def test_another_plan_is_told_to_who_remembers_limits_or_waits_for_them(world: World) -> None:
    boss = an_admin(world)
    heard: list[tuple[str, str]] = []
    wanted = (PLANS, SCHEDULE_CHANNEL)
    world.deps.db.subscribe(lambda *note: heard.append(note) if note[0] in wanted else None)
    boss.post(f"{USERS}/someone", {"lang": "zh"})
    assert heard == []
    boss.post(f"{USERS}/someone", {"plan": "unlimited"})
    assert heard == [(PLANS, "someone"), (SCHEDULE_CHANNEL, "")]


def test_pages_of_users(world: World) -> None:
    admin = an_admin(world)
    for name in ("a", "b", "c"):
        admin.post(USERS, {"user_id": name})
    first = admin.get(USERS, limit=2)
    assert ([user["user_id"] for user in first["users"]], first["next"]) == (["a", "b"], "b")
    rest = admin.get(USERS, after="b")
    assert [user["user_id"] for user in rest["users"]] == ["c", "chief", "someone"]
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("body", "error", "code"),
    [
        ({"user_id": "someone"}, Conflict, "user_id_taken"),
        ({"user_id": "root"}, Conflict, "user_id_taken"),
        ({"user_id": "../x"}, Invalid, "body_invalid"),
        ({"user_id": "a\n"}, Invalid, "body_invalid"),
        ({"user_id": "bob", "role": "king"}, Invalid, "body_invalid"),
        ({"user_id": "bob", "plan": "gold"}, Invalid, "plan_unknown"),
        ({"user_id": "bob", "email": "nonsense"}, Invalid, "email_invalid"),
        ({"user_id": "bob", "email": "ANN@example.com"}, Conflict, "email_taken"),
    ],
)
def test_a_wrong_user_is_refused(
    world: World, body: dict[str, object], error: type[PaddleCloudError], code: str
) -> None:
    admin = an_admin(world)
    admin.post(USERS, {"user_id": "ann", "email": "ann@example.com"})
    before = world.count("users"), world.count("audit")
    with pytest.raises(error) as caught:
        admin.post(USERS, body)
    assert caught.value.code == code
    assert (world.count("users"), world.count("audit")) == before


def test_a_disabled_user_is_locked_out_at_once_on_every_server(world: World) -> None:
    admin, ann = an_admin(world), world.caller("ann")
    other = App(world.deps)  # another server on the same database
    try:
        for app in (other, world.app):
            world.stage.app = app
            assert ann.get("/api/v1/whoami")["user_id"] == "ann"
        admin.post(f"{USERS}/ann", {"disabled": True})
        for app in (world.app, other):
            world.stage.app = app
            reply = ann.call("GET", "/api/v1/whoami")
            assert (reply.status, reply.code) == (401, "auth_unknown_key")
        world.stage.app = world.app
        assert admin.post(f"{USERS}/ann", {"disabled": False})["disabled"] is False
        assert ann.get("/api/v1/whoami")["user_id"] == "ann"
    finally:
        other.close()


def test_a_new_role_counts_from_the_next_request_on(world: World) -> None:
    admin, ann = an_admin(world), world.caller("ann")
    with pytest.raises(Forbidden):
        ann.get(USERS)
    admin.post(f"{USERS}/ann", {"role": "admin"})
    assert ann.get(USERS)["users"]
    admin.post(f"{USERS}/ann", {"role": "readonly"})
    reply = ann.call("POST", "/api/v1/tokens", body={})
    assert (reply.status, reply.code) == (403, "auth_readonly")
    assert ann.get("/api/v1/jobs")["jobs"] == []


def test_the_last_admin_stays(world: World) -> None:
    admin = an_admin(world)
    for body in ({"disabled": True}, {"role": "user"}):
        with pytest.raises(Conflict) as caught:
            admin.post(f"{USERS}/chief", body)
        assert caught.value.code == "user_last_admin"
    with pytest.raises(Conflict):
        admin.post(f"{USERS}/chief/delete")
    world.caller("second", role=UserRole.ADMIN)
    assert admin.post(f"{USERS}/chief", {"role": "user"})["role"] == "user"


def test_who_has_jobs_or_files_cannot_be_deleted(world: World) -> None:
    admin = an_admin(world)
    world.submit()
    damaged = "users/someone/damaged/content.20261116T000000Z"
    world.deps.store.write(damaged, [b"of no use"])
    with pytest.raises(Conflict) as caught:
        admin.post(f"{USERS}/someone/delete")
    assert (caught.value.code, caught.value.params["jobs"]) == ("user_has_jobs", 1)
    assert world.deps.store.stat(damaged) is not None
    bob = world.caller("bob")
    world.snapshot({"a": b"1"}, bob)
    with pytest.raises(Conflict):
        admin.post(f"{USERS}/bob/delete")
    carl = world.caller("carl")
    world.deps.store.write("users/carl/damaged/content.20261116T000000Z", [b"of no use"])
    assert admin.post(f"{USERS}/carl/delete") == {"user_id": "carl"}
    assert list(world.deps.store.list("users/carl/")) == []
    with pytest.raises(Unauthenticated):
        carl.get("/api/v1/whoami")
    with pytest.raises(NotFound):
        admin.get(f"{USERS}/carl")


def test_a_machine_is_no_user(world: World) -> None:
    admin = an_admin(world)
    for method, path, body in (
        ("GET", f"{USERS}/node-0", b""),
        ("POST", f"{USERS}/node-0", {"disabled": True}),
        ("POST", f"{USERS}/node-0/delete", b""),
        ("POST", f"{USERS}/node-0/tokens", {}),
        ("POST", f"/api/v1/admin/tokens/{world.agent.caller.ak}/revoke", b""),
    ):
        assert admin.call(method, path, body=body).status == 404, path
    assert world.agent.caller.ak not in [
        row["ak"] for row in admin.get("/api/v1/admin/tokens", revoked=1)["tokens"]
    ]
    admin.post(USERS, {"user_id": "node-0"})
    admin.post(f"{USERS}/node-0", {"disabled": True})
    assert world.agent.poll() == [], "a user of the same name is somebody else"


def test_a_person_manages_their_keys(world: World) -> None:
    made = world.user.post("/api/v1/tokens", {"name": "笔记本", "scope": "read"})
    assert made["sk"] == secret_of(world.deps.server_key, made["ak"])
    reader = with_keys(world, made)
    assert reader.get("/api/v1/whoami")["user_id"] == "someone"
    reply = reader.call("POST", "/api/v1/tokens", body={})
    assert (reply.status, reply.code) == (403, "auth_scope")
    rows = world.user.get("/api/v1/tokens")["tokens"]
    assert {row["ak"] for row in rows} == {made["ak"], world.user.ak}
    assert all("sk" not in row for row in rows)
    path = f"/api/v1/tokens/{made['ak']}/revoke"
    gone = world.user.post(path)
    assert gone["revoked_at"] is not None
    assert world.user.post(path) == gone
    with pytest.raises(Unauthenticated):
        reader.get("/api/v1/whoami")
    assert [row["ak"] for row in world.user.get("/api/v1/tokens")["tokens"]] == [world.user.ak]
    assert len(world.user.get("/api/v1/tokens", revoked=1)["tokens"]) == 2


def test_nobody_sees_or_revokes_the_key_of_another(world: World) -> None:
    other = world.caller("other")
    unknown = other.call("POST", f"/api/v1/tokens/{'0' * 32}/revoke")
    theirs = other.call("POST", f"/api/v1/tokens/{world.user.ak}/revoke")
    assert (unknown.status, unknown.code) == (theirs.status, theirs.code) == (404, "token_unknown")
    assert world.user.get("/api/v1/whoami")
    assert an_admin(world).post(f"/api/v1/admin/tokens/{world.user.ak}/revoke")["revoked_at"]
    with pytest.raises(Unauthenticated):
        world.user.get("/api/v1/whoami")


def test_a_user_has_so_many_keys_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_service, "MAX_TOKENS", 3)
    for _ in range(2):
        world.user.post("/api/v1/tokens", {})
    with pytest.raises(Conflict) as caught:
        world.user.post("/api/v1/tokens", {})
    assert caught.value.code == "tokens_too_many"


@pytest.mark.parametrize("name", ["a\nb", "x" * 65, "\0"])
def test_a_name_that_breaks_tables_is_refused(world: World, name: str) -> None:
    with pytest.raises(Invalid):
        world.user.post("/api/v1/tokens", {"name": name})


def test_the_last_use_is_noted_every_five_minutes(world: World) -> None:
    def last_use() -> object:
        found = world.deps.db.read(lambda tx: tokens.get_token(tx, world.user.ak))
        assert found is not None
        return found.last_used_at

    assert last_use() is None
    first = world.clock()
    world.user.get("/api/v1/whoami")
    eventually(lambda: last_use() == first)
    world.clock.move(minutes=4)
    world.user.get("/api/v1/whoami")
    world.deps.db.write(lambda tx: None)  # what was handed over before is written
    assert last_use() == first
    second = world.clock.move(minutes=1)
    world.user.get("/api/v1/whoami")
    eventually(lambda: last_use() == second)


def test_a_key_of_before_the_change_of_the_servers_key_is_still_good(world: World) -> None:
    old = world.user
    deps = replace(world.deps, server_key=b"n" * 32, old_keys=(b"x" * 32, b"k" * 32))
    world.app.close()
    world.app = App(deps)
    world.enter()
    assert old.get("/api/v1/whoami")["user_id"] == "someone"
    made = old.post("/api/v1/tokens", {})
    assert made["sk"] == secret_of(b"n" * 32, made["ak"])
    assert with_keys(world, made).get("/api/v1/whoami")["user_id"] == "someone"
    wrong = replace(old, sk=secret_of(b"y" * 32, old.ak))
    reply = wrong.call("GET", "/api/v1/whoami")
    assert (reply.status, reply.code) == (401, "auth_signature")


def test_an_admin_sees_and_kills_the_jobs_of_others(world: World) -> None:
    admin = an_admin(world)
    job_id, order = world.placed()
    world.agent.run(order, b"hello\n")
    waiting = world.submit()
    rows = admin.get("/api/v1/admin/jobs")["jobs"]
    assert [(row["job_id"], row["owner"]) for row in rows] == [
        (waiting, "someone"), (job_id, "someone"),
    ]  # fmt: skip
    found = admin.get("/api/v1/admin/jobs", owner="someone", state="success")["jobs"]
    assert [row["job_id"] for row in found] == [job_id]
    assert admin.get("/api/v1/admin/jobs", state="killed,timeout")["jobs"] == []
    assert admin.get("/api/v1/admin/jobs", owner="chief")["jobs"] == []
    assert admin.get("/api/v1/jobs")["jobs"] == []
    assert admin.get(f"/api/v1/jobs/{job_id}")["owner"] == "someone"
    assert admin.get(f"/api/v1/jobs/{job_id}/history")["history"]
    assert admin.call("GET", f"/api/v1/jobs/{job_id}/logs").body == b"hello\n"
    paths = [row["path"] for row in admin.get(f"/api/v1/jobs/{job_id}/files", prefix="/")["files"]]
    assert "run.sh" in paths
    assert admin.post(f"/api/v1/jobs/{waiting}/kill")["job_status"] == "killed"
    assert actions(world)[-1] == ("chief", "job.kill", waiting)


def test_only_an_admin_is_told_of_the_servers_paths_and_counts(world: World) -> None:
    for caller, told in ((world.user, False), (an_admin(world), True)):
        checks = {each["name"]: each for each in caller.get("/api/v1/doctor")["checks"]}
        assert (checks["database"]["ok"], checks["store"]["ok"]) == (True, True)
        assert bool(checks["database"]["detail"]) is told
        assert bool(checks["store"]["detail"]) is told


def test_a_reader_of_chinese_is_told_of_the_links_in_chinese(world: World) -> None:
    chief = an_admin(world)
    reply = chief.call("GET", "/api/v1/doctor", headers={"accept-language": "zh"})
    checks = {each["name"]: each["detail"] for each in reply.json()["checks"]}
    assert checks["database"] == "共 0 个任务"
    assert "尚无执行端（Agent）连接" in checks["agent"]


def test_ones_own_kill_is_nobodys_business(world: World) -> None:
    world.user.post(f"/api/v1/jobs/{world.submit()}/kill")
    assert actions(world) == []


def test_pools_are_listed_with_what_is_taken(world: World) -> None:
    _, order = world.placed(cpu=0.5)
    world.agent.start(order)
    (pool,) = an_admin(world).get("/api/v1/admin/pools")["pools"]
    assert (pool["name"], pool["public"], pool["job_types"]) == ("local", False, ["cpu"])
    (node,) = pool["nodes"]
    assert (node["id"], node["cpu"], node["used_cpu"]) == ("node-0", 1.0, 0.5)
    assert node["seen_at"] is not None


def test_every_change_is_in_the_audit(world: World) -> None:
    admin = an_admin(world)
    admin.post(USERS, {"user_id": "ann"})
    admin.post(f"{USERS}/ann", {"role": "readonly"})
    admin.post(f"{USERS}/ann", {"role": "readonly"})  # changes nothing, so it is not told
    admin.post(f"{USERS}/ann", {"disabled": True})
    admin.post(f"{USERS}/ann", {"disabled": False})
    made = admin.post(f"{USERS}/ann/tokens", {"name": "x"})
    admin.post(f"/api/v1/admin/tokens/{made['ak']}/revoke")
    admin.post(f"{USERS}/ann/delete")
    admin.post("/api/v1/admin/gc")
    world.user.post("/api/v1/tokens", {})
    assert actions(world) == [
        ("chief", "user.create", "ann"),
        ("chief", "user.set", "ann"),
        ("chief", "user.disable", "ann"),
        ("chief", "user.enable", "ann"),
        ("chief", "token.create", "ann"),
        ("chief", "token.revoke", "ann"),
        ("chief", "user.delete", "ann"),
        ("chief", "server.gc", ""),
        ("someone", "token.create", "someone"),
    ]
    events = admin.get("/api/v1/admin/audit")["events"]
    changed = next(event for event in events if event["action"] == "user.set")
    assert changed["detail"] == {"old_role": "user", "new_role": "readonly"}
    assert changed["source"] == "127.0.0.1"
    assert made["sk"] not in str(events)


def test_the_audit_is_read_by_user_by_time_and_in_pages(world: World) -> None:
    admin = an_admin(world)
    for name in ("a", "b", "c"):
        admin.post(USERS, {"user_id": name})
        world.clock.move(hours=1)
    about = admin.get("/api/v1/admin/audit", user="b")["events"]
    assert [event["target"] for event in about] == ["b"]
    since = (world.clock() - timedelta(hours=2)).timestamp()
    found = admin.get("/api/v1/admin/audit", since=since)["events"]
    assert [event["target"] for event in found] == ["c", "b"]
    page = admin.get("/api/v1/admin/audit", limit=2)
    rest = admin.get("/api/v1/admin/audit", limit=2, before=page["next"])
    assert [e["target"] for e in page["events"] + rest["events"]] == ["c", "b", "a"]
    assert rest["next"] is None


@pytest.mark.parametrize(("kept", "left"), [(30, ["young"]), (0, ["young", "old"])])
def test_the_audit_is_kept_as_long_as_is_set(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, kept: int, left: list[str]
) -> None:
    keep = Retention(audit=timedelta(days=kept))
    world = make_world(change=lambda settings: replace(settings, team=True, retention=keep))
    monkeypatch.setattr(garbage_collection, "AUDIT_BATCH", 1)
    admin = an_admin(world)
    admin.post(USERS, {"user_id": "old"})
    world.clock.move(days=31)
    admin.post(USERS, {"user_id": "young"})
    garbage_collection.collect(world.deps)
    assert [event["target"] for event in admin.get("/api/v1/admin/audit")["events"]] == left


def test_gen_token_makes_a_user_and_mails_a_key(world: World) -> None:
    reply = gen_token(world, "张三@163.com", lang="en")
    assert (reply.status, reply.json()) == (202, {"email": "张三@163.com"})
    (mail,) = mailed(world)
    assert (mail.address, mail.template, mail.lang) == ("张三@163.com", "mail_token", "en")
    assert set(mail.params) == {"ak", "user_id"}
    new = pair(world, mail).get("/api/v1/whoami")
    assert new["user_id"] == mail.params["user_id"]
    assert new["role"] == "user"
    assert [row[:2] for row in actions(world)][:2] == [
        ("anonymous", "user.create"), ("anonymous", "token.mail"),
    ]  # fmt: skip


def test_gen_token_says_the_same_of_known_and_unknown_addresses(world: World) -> None:
    an_admin(world).post(USERS, {"user_id": "ann", "email": "ann@example.com"})
    an_admin(world).post(USERS, {"user_id": "gone", "email": "gone@example.com"})
    an_admin(world).post(f"{USERS}/gone", {"disabled": True})
    replies = {
        name: gen_token(world, f"{name}@example.com") for name in ("ann", "nobody.yet", "gone")
    }
    bodies = {r.body.replace(name.encode(), b"X") for name, r in replies.items()}
    assert {reply.status for reply in replies.values()} == {202}
    assert bodies == {b'{"email":"X@example.com"}'}
    mails = {mail.address: mail for mail in mailed(world)}
    assert sorted(mails) == ["ann@example.com", "nobody.yet@example.com"]
    assert pair(world, mails["ann@example.com"]).get("/api/v1/whoami")["user_id"] == "ann"


def test_a_letter_that_looks_alike_gets_nobodys_key(world: World) -> None:
    """What is typed is never mailed to: the key goes to the address that the user has."""
    an_admin(world).post(USERS, {"user_id": "kate", "email": "kate@example.com"})
    assert gen_token(world, "\u212aate@example.com").status == 202  # the sign of the kelvin
    (mail,) = mailed(world)
    assert (mail.address, mail.params["user_id"]) == ("kate@example.com", "kate")


def test_asking_again_replaces_when_the_new_key_is_used_and_not_before(world: World) -> None:
    gen_token(world, "ann@example.com")
    first = pair(world, mailed(world)[0])
    assert first.get("/api/v1/whoami")
    shown = with_keys(world, first.post("/api/v1/tokens", {"name": "own"}))
    world.clock.move(minutes=1)
    gen_token(world, "ann@example.com")  # anybody can type an address
    assert first.get("/api/v1/whoami"), "a stranger locked somebody out"
    second = pair(world, mailed(world)[1])
    assert second.get("/api/v1/whoami")
    eventually(lambda: first.call("GET", "/api/v1/whoami").status == 401)
    assert second.get("/api/v1/whoami")
    assert shown.get("/api/v1/whoami"), "only what came by mail is replaced"
    assert ("ann", "token.replace", "ann") in actions(world)


def test_asking_again_adds_where_the_policy_says_so(make_world: MakeWorld) -> None:
    world = make_world(change=a_team(again="add"))
    for _ in range(2):
        gen_token(world, "ann@example.com")
        world.clock.move(minutes=1)
    first, second = (pair(world, mail) for mail in mailed(world))
    for caller in (first, second, first):
        assert caller.get("/api/v1/whoami")


def test_keys_that_nobody_used_are_forgotten(world: World) -> None:
    gen_token(world, "ann@example.com")
    world.clock.move(days=8)
    gen_token(world, "ann@example.com")
    user_id = str(mailed(world)[0].params["user_id"])
    left = world.deps.db.read(lambda tx: tokens.list_tokens(tx, user_id, all_of_them=True))
    assert [(row.ak, row.origin) for row in left] == [(mailed(world)[1].params["ak"], Origin.MAIL)]


def test_gen_token_is_limited_by_address_and_by_source(make_world: MakeWorld) -> None:
    world = make_world(change=a_team(per_address=2, per_source=3))
    assert [gen_token(world, "ann@example.com").status for _ in range(2)] == [202, 202]
    with pytest.raises(TooMany) as caught:
        gen_token(world, "ANN@example.com").json()
    assert caught.value.params == {"limit": 2, "minutes": 60}
    assert gen_token(world, "bob@example.com").status == 202
    reply = gen_token(world, "carl@example.com")
    assert (reply.status, reply.code) == (429, "gen_token_often")
    assert len(mailed(world)) == 3
    world.clock.move(minutes=61)
    assert gen_token(world, "carl@example.com").status == 202


@pytest.mark.parametrize("address", ["nonsense", "a\r\nBcc: b@c.de", "", "a@b@c", "x" * 400])
def test_gen_token_refuses_what_is_no_address(world: World, address: str) -> None:
    before = world.count("users"), world.count("rate_marks")
    with pytest.raises(Invalid):
        gen_token(world, address).json()
    assert (world.count("users"), world.count("rate_marks"), mailed(world)) == (*before, [])


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"email": 1}', b"{" * 20_000])
def test_gen_token_takes_short_right_bodies_only(world: World, body: bytes) -> None:
    where = ("127.0.0.1", world.stage.port, "POST", "/api/v1/gen_token")
    reply = exchange(*where, {"host": "localhost"}, body)
    assert reply.status in (400, 413)


def test_gen_token_keeps_to_the_domains(make_world: MakeWorld) -> None:
    world = make_world(change=a_team(domains=("Example.com", "例子.公司")))
    with pytest.raises(Refused) as caught:
        gen_token(world, "a@evil.example").json()
    assert caught.value.params["domains"] == "Example.com, 例子.公司"
    for address in ("a@EXAMPLE.com", "b@例子.公司", "c@xn--fsqu00a.xn--55qx5d"):
        assert gen_token(world, address).status == 202
    assert gen_token(world, "a@sub.example.com").status == 422


def test_gen_token_without_mail_says_what_to_do(make_world: MakeWorld) -> None:
    world = make_world(change=a_team(mail=""))
    reply = gen_token(world, "a@example.com")
    assert (reply.status, reply.code) == (422, "gen_token_no_mail")
    assert b"admin token create" in reply.body


def test_gen_token_of_a_private_server_mails_nobody(make_world: MakeWorld) -> None:
    reply = gen_token(make_world(), "a@example.com")
    assert (reply.status, reply.code) == (422, "gen_token_not_team")
