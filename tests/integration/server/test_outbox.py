"""Mail from the event to the mailbox: a real database, a real SMTP server in its own process."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db import choices, outbox, tokens
from paddlecloud.db.outbox import MAIL, WEBHOOK, Outgoing
from paddlecloud.model.errors import ConfigError, Retry
from paddlecloud.model.quota import Plan
from paddlecloud.server.auth import secret_of
from paddlecloud.server.loops.outbox import BACK_OFF, LOOP, Sender
from paddlecloud.server.loops.runner import Runner
from paddlecloud.server.services import health, mail, notify
from paddlecloud.server.settings import Mail, Settings
from paddlecloud.testing import SignedCaller
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.smtp import SmtpServer, text_of
from tests.integration.server.world import World, eventually

PASSWORD = "smtp-password-canary"
HOST = "127.0.0.1"


@pytest.fixture(scope="session")
def postman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmtpServer]:
    """Takes every mail but those to `nobody`; shared by all tests, who look at their own."""
    with SmtpServer(tmp_path_factory.mktemp("smtp"), "--refuse=nobody") as smtp:
        yield smtp


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def with_mail(port: int, **changes: Any) -> Callable[[Settings], Settings]:
    mail_settings: dict[str, Any] = {
        "host": HOST,
        "port": port,
        "security": "none",
        "sender": "PaddleCloud <cloud@example.com>",
    }
    mail_settings |= changes

    def change(settings: Settings) -> Settings:
        return replace(settings, mail=Mail(**mail_settings))

    return change


def a_person(world: World, email: str, lang: str = "en", **wanted: Any) -> SignedCaller:
    """`someone` with an address and a choice."""
    world.deps.db.write(
        lambda tx: tx.execute(
            "update users set email = ?, lang = ? where id = 'someone'", (email, lang)
        )
    )
    if wanted:
        world.user.post("/api/v1/notifications", wanted)
    return world.user


def run_loop(world: World, sender: Sender | None = None) -> Sender:
    """Ticks until nothing is due any more."""
    sender = sender or Sender()
    while True:
        sender.tick(world.deps, world.clock())
        assert sender.wait(30)
        if not world.deps.db.read(lambda tx: outbox.has_due(tx, world.clock())):
            return sender


def rows(world: World) -> list[Outgoing]:
    found = world.deps.db.read(lambda tx: outbox.latest(tx, "someone", 100))
    return sorted(found, key=lambda row: (row.created_at, row.id))


def put_token(world: World, email: str, lang: str = "zh") -> str:
    """What gen_token does: a token and a mail about it; the access key."""
    ak = world.user.ak

    def put(tx: Any) -> None:
        params = {"ak": ak, "user_id": "someone"}
        outbox.put(
            tx, kind=MAIL, owner="someone", address=email, template="mail_token", params=params,
            lang=lang, now=world.clock(),
        )  # fmt: skip

    world.deps.db.write(put)
    return ak


def mails_to(smtp: SmtpServer, address: str) -> list[tuple[Any, dict[str, Any]]]:
    both = zip(smtp.mails(), smtp.envelopes(), strict=False)  # another may come in between
    return [(message, facts) for message, facts in both if facts["to"] == [address]]


# -- the token ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lang", "address", "subject"),
    [
        ("zh", "zhang@example.com", "PaddleCloud：您的 token"),
        ("en", "ann@example.com", "PaddleCloud: your token"),
        ("zh", "张三@163.com", "PaddleCloud：您的 token"),
    ],
)
def test_a_token_is_mailed(
    make_world: MakeWorld,
    postman: SmtpServer,
    caplog: pytest.LogCaptureFixture,
    lang: str,
    address: str,
    subject: str,
) -> None:
    world = make_world(change=with_mail(postman.port))
    ak = put_token(world, address, lang)
    with caplog.at_level(logging.DEBUG):
        run_loop(world)
    ((message, facts),) = mails_to(postman, address)
    sk = secret_of(world.deps.server_key, ak)
    section = f"[main]\ndebug = 0\nuserid: someone\nak: {ak}\nsk: {sk}\n"
    assert section in text_of(message)
    assert message["Subject"] == subject
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"] == mail.message_id(rows(world)[0].id, "example.com")
    assert ("SMTPUTF8" in facts["options"]) is (not address.isascii())
    assert facts["sender"] == "cloud@example.com"
    dump = repr(world.deps.db.read(lambda tx: tx.all("select * from outbox")))
    assert ak in dump
    assert sk not in dump + caplog.text


def test_a_token_revoked_meanwhile_is_not_mailed(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    world = make_world(change=with_mail(postman.port))
    ak = put_token(world, "revoked@example.com")
    world.deps.db.write(lambda tx: tokens.revoke_token(tx, ak, world.clock()))
    run_loop(world)
    (row,) = rows(world)
    assert row.given_up_at == world.clock()
    assert row.last_error is not None and row.last_error.code == "mail_token_gone"
    assert mails_to(postman, "revoked@example.com") == []


def test_the_address_of_the_server_is_in_the_section(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    def change(settings: Settings) -> Settings:
        http = replace(settings.http, public_url="https://cloud.example")
        return replace(with_mail(postman.port)(settings), http=http)

    world = make_world(change=change)
    put_token(world, "url@example.com", "en")
    run_loop(world)
    ((message, _),) = mails_to(postman, "url@example.com")
    assert "[openapi]\nhost = https://cloud.example\n" in text_of(message)


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_recipient_who_is_refused_is_given_up_at_once(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    world = make_world(change=with_mail(postman.port))
    put_token(world, "nobody@example.com")
    run_loop(world)
    (row,) = rows(world)
    assert (row.tries, row.given_up_at) == (1, world.clock())
    assert row.last_error is not None
    assert row.last_error.code == "mail_recipient_refused"
    assert row.last_error.params["status"] == 550


@pytest.mark.parametrize(
    ("flags", "code", "again"),
    [
        (("--refuse=x@", "--status=451 later"), "mail_recipient_refused", True),
        (("--data=554 no",), "mail_refused", False),
        (("--data=452 full",), "mail_refused", True),
    ],
)
def test_what_a_mail_server_answers_decides_about_another_try(
    make_world: MakeWorld, tmp_path: Path, flags: tuple[str, ...], code: str, again: bool
) -> None:
    with SmtpServer(tmp_path / "smtp", *flags) as smtp:
        world = make_world(change=with_mail(smtp.port))
        put_token(world, "x@example.com")
        run_loop(world)
    (row,) = rows(world)
    assert row.last_error is not None and row.last_error.code == code
    assert (row.given_up_at is None) is again


def test_a_mail_server_that_is_away_is_asked_later_and_later(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(change=with_mail(closed_port()))
    put_token(world, "later@example.com")
    sender = Sender()
    for tries, wait in enumerate(BACK_OFF[:3], 1):
        run_loop(world, sender)
        (row,) = rows(world)
        assert (row.tries, row.sent_at, row.given_up_at) == (tries, None, None)
        assert row.last_error is not None and row.last_error.code == "mail_unreachable"
        before = wait - timedelta(seconds=1)
        world.clock.move(seconds=before.total_seconds())
        run_loop(world, sender)
        assert rows(world)[0].tries == tries
        world.clock.move(seconds=1)
    with SmtpServer(tmp_path / "smtp") as smtp:
        there = replace(world.deps, settings=with_mail(smtp.port)(world.deps.settings))
        sender.tick(there, world.clock())
        assert sender.wait(30)
        (row,) = rows(world)
        assert (row.sent_at, row.last_error) == (world.clock(), None)
        assert len(smtp.mails()) == 1


def test_it_is_given_up_after_a_day(make_world: MakeWorld) -> None:
    world = make_world(change=with_mail(closed_port()))
    put_token(world, "never@example.com")
    sender = Sender()
    for _ in range(60):
        run_loop(world, sender)
        world.clock.move(minutes=30)
    (row,) = rows(world)
    assert row.given_up_at is not None
    assert row.given_up_at - row.created_at <= timedelta(hours=24)
    assert row.last_error is not None and row.last_error.code == "notify_undelivered"


def test_a_crash_in_the_middle_means_another_try(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    """A row that was taken by a server that died is due again when its time is over."""
    world = make_world(change=with_mail(postman.port))
    put_token(world, "crash@example.com")
    lease = timedelta(minutes=5)
    (taken,) = world.deps.db.write(
        lambda tx: outbox.take_due(tx, world.clock(), 9, kind=MAIL, lease=lease)
    )
    run_loop(world)
    assert mails_to(postman, "crash@example.com") == []
    world.clock.move(minutes=5)
    run_loop(world)
    ((message, _),) = mails_to(postman, "crash@example.com")
    assert message["Message-ID"] == mail.message_id(taken.id, "example.com")
    assert rows(world)[0].tries == 2


def test_a_server_that_never_answers_holds_up_only_for_its_timeout(
    make_world: MakeWorld,
) -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        world = make_world(change=with_mail(port, timeout=timedelta(seconds=0.2)))
        put_token(world, "silent@example.com")
        run_loop(world)
    assert rows(world)[0].last_error is not None


# -- logins and TLS -------------------------------------------------------------------------------


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_login_goes_over_tls(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch, security: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    flags = [f"--certificate={certificate}", f"--password={PASSWORD}"]
    flags += ["--starttls"] if security == "starttls" else []
    with SmtpServer(tmp_path / "smtp", *flags) as smtp:
        settings = Mail(
            host="localhost", port=smtp.port, security=security, user="cloud", password=PASSWORD,
            sender="cloud@example.com",
        )  # fmt: skip
        mail.send(settings, a_message(), "ann@example.com")
        assert smtp.envelopes()[0] == {
            "sender": "cloud@example.com",
            "to": ["ann@example.com"],
            "options": smtp.envelopes()[0]["options"],
            "tls": True,
            "login": True,
        }
        mail.probe(settings)
        with pytest.raises(ConfigError) as caught:
            mail.send(replace(settings, password="wrong-canary"), a_message(), "a@example.com")
        assert caught.value.code == "mail_login_failed"
        assert "canary" not in str(caught.value) + repr(caught.value.__context__)


def test_a_certificate_that_does_not_hold_is_not_believed(
    tmp_path: Path, certificate: Path
) -> None:
    flags = (f"--certificate={certificate}", "--starttls")
    with SmtpServer(tmp_path / "smtp", *flags) as smtp:
        settings = Mail(host="localhost", port=smtp.port, sender="cloud@example.com")
        with pytest.raises(Retry, match="certificate"):
            mail.send(settings, a_message(), "ann@example.com")
        assert smtp.mails() == []


def test_no_password_travels_in_clear() -> None:
    settings = Mail(host="mail.example", security="none", user="u", password=PASSWORD)
    with pytest.raises(ConfigError) as caught:
        mail.send(settings, a_message(), "ann@example.com")
    assert caught.value.code == "mail_login_plain"
    assert PASSWORD not in str(caught.value)


def test_a_mail_server_without_utf8_cannot_have_chinese_addresses(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    with SmtpServer(tmp_path / "smtp", "--no-utf8") as smtp:
        world = make_world(change=with_mail(smtp.port))
        put_token(world, "张三@163.com")
        run_loop(world)
    (row,) = rows(world)
    assert row.given_up_at is not None
    assert row.last_error is not None and row.last_error.code == "mail_address_utf8"


# -- notifications --------------------------------------------------------------------------------


def test_events_of_a_job_are_mailed_once(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    a_person(world, "events@example.com", events=["started", "ended", "failed"], mail=True)
    good, order = world.placed(job_name="good one")
    world.agent.start(order)
    world.agent.exit(order, 0)
    world.release()
    bad, order = world.placed(job_name="bad one")
    world.agent.start(order)
    world.agent.exit(order, 3)
    assert [row.id for row in sorted(rows(world), key=lambda row: row.id)] == sorted(
        [
            f"mail.started.{good}.1",
            f"mail.ended.{good}.1",
            f"mail.started.{bad}.1",
            f"mail.failed.{bad}.1",
        ]
    )
    run_loop(world)
    found = {m["Subject"]: text_of(m) for m, _ in mails_to(postman, "events@example.com")}
    assert set(found) == {
        "PaddleCloud: good one has started",
        "PaddleCloud: good one has ended (success)",
        "PaddleCloud: bad one has started",
        "PaddleCloud: bad one did not succeed (failed)",
    }
    why = found["PaddleCloud: bad one did not succeed (failed)"]
    assert "3" in why and f"paddlecloud logs --job_id={bad}" in why
    assert all(row.sent_at for row in rows(world))


def test_a_job_that_never_found_a_place_has_failed(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    world = make_world(change=with_mail(postman.port))
    a_person(world, "timeout@example.com", events=["failed"], mail=True)
    world.placed()
    waits = world.submit()
    world.plan()
    world.clock.move(hours=25)
    world.plan()
    (row,) = rows(world)
    assert (row.id, row.params["state"]) == (f"mail.failed.{waits}.0", "schedule timeout")
    assert "24" in str(row.params["reason"])


def test_nothing_is_noted_for_who_chose_nothing(world: World) -> None:
    _, order = world.placed()
    world.agent.run(order)
    assert world.count("outbox") == 0


def test_a_choice_counts_at_once_and_so_does_its_end(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    world = make_world(change=with_mail(postman.port))
    a_person(world, "choice@example.com")
    _, order = world.placed()
    world.agent.start(order)
    world.user.post("/api/v1/notifications", {"events": ["ended"], "mail": True})
    world.agent.exit(order, 0)
    world.release()
    assert [row.template for row in rows(world)] == ["mail_ended"]
    world.user.post("/api/v1/notifications", {"events": []})
    _, order = world.placed()
    world.agent.run(order)
    assert world.count("outbox") == 1


def test_a_job_that_waits_long_is_told_once(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    a_person(world, "queue@example.com", "zh", events=["long_queue"], mail=True)
    world.placed()
    waiting = world.submit(job_name="等待")
    world.plan()
    sender = run_loop(world)
    assert world.count("outbox") == 0
    world.clock.move(hours=1, minutes=1)
    run_loop(world, sender)
    world.clock.move(hours=1)
    run_loop(world, sender)
    (row,) = rows(world)
    assert row.id == f"mail.long_queue.{waiting}.0"
    ((message, _),) = mails_to(postman, "queue@example.com")
    assert message["Subject"] == "PaddleCloud：任务 等待 仍在排队"
    assert "已等待 61 分钟" in text_of(message)


def test_a_thousand_waiting_jobs_are_not_a_thousand_mails(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    world = make_world(change=with_mail(postman.port))
    a_person(world, "many@example.com", events=["long_queue"], mail=True)
    for _ in range(notify.LONG_QUEUES_A_DAY + 5):
        world.submit()
    world.clock.move(hours=2)
    assert notify.look(world.deps, world.clock()) == notify.LONG_QUEUES_A_DAY
    assert notify.look(world.deps, world.clock()) == 0
    world.clock.move(days=1, minutes=1)
    assert notify.look(world.deps, world.clock()) == 5


def test_a_day_that_is_nearly_used_up_is_told_once_a_day(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    def change(settings: Settings) -> Settings:
        plans = {**settings.plans, "ten": Plan(minutes_a_day=10)}
        changed = with_mail(postman.port)(settings)
        return replace(changed, team=True, plans=plans, default_plan="ten")

    world = make_world(change=change)
    a_person(world, "quota@example.com", events=["quota_80"], mail=True)
    world.clock.now = world.clock.now.replace(hour=4)  # noon in Shanghai
    began = world.clock()

    def ran(tx: Any, minutes: float) -> None:
        end = began + timedelta(minutes=minutes)
        tx.execute("delete from usage")
        tx.execute(
            "insert into usage values ('j', 1, 'someone', 'p', 1, 1, 0, 0, ?, ?)",
            (int(began.timestamp() * 1e6), int(end.timestamp() * 1e6)),
        )

    world.clock.move(hours=1)
    world.deps.db.write(lambda tx: ran(tx, 7.9))
    assert notify.look(world.deps, world.clock()) == 0
    world.deps.db.write(lambda tx: ran(tx, 8.5))
    assert notify.look(world.deps, world.clock()) == 1
    assert notify.look(world.deps, world.clock()) == 0
    run_loop(world)
    ((message, _),) = mails_to(postman, "quota@example.com")
    assert message["Subject"] == "PaddleCloud: 8 of 10 minutes of today are used"


def test_two_servers_send_each_mail_once(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    for number in range(12):
        world.deps.db.write(
            lambda tx, n=number: outbox.put(  # type: ignore[misc]
                tx, kind=MAIL, owner=f"u{n}", address="twice@example.com", template="mail_test",
                params={}, lang="en", now=world.clock(),
            )
        )  # fmt: skip
    senders = (Sender(), Sender())
    while world.deps.db.read(lambda tx: outbox.has_due(tx, world.clock())):
        for sender in senders:
            sender.tick(world.deps, world.clock())
        assert all(sender.wait(30) for sender in senders)
    assert len(mails_to(postman, "twice@example.com")) == 12
    counted = world.deps.metrics.render(health.gauges(world.deps))
    assert 'paddlecloud_outbox_sent_total{kind="mail"} 12\n' in counted
    assert 'paddlecloud_outbox_waiting{kind="mail"} 0\n' in counted


def test_the_loop_is_woken_by_a_new_row(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    loop = replace(LOOP, tick=Sender().tick, every=timedelta(minutes=5))
    runner = Runner(world.deps, (loop,))
    runner.start()
    try:
        put_token(world, "bell@example.com")
        eventually(lambda: bool(mails_to(postman, "bell@example.com")))
    finally:
        runner.stop()


# -- choosing -------------------------------------------------------------------------------------


def test_mail_needs_a_mail_server_and_an_address(
    make_world: MakeWorld, postman: SmtpServer
) -> None:
    world = make_world()
    reply = world.user.call("POST", "/api/v1/notifications", body=b'{"mail": true}')
    assert reply.code == "mail_not_configured"
    world = make_world(change=with_mail(postman.port))
    reply = world.user.call("POST", "/api/v1/notifications", body=b'{"mail": true}')
    assert reply.code == "notify_no_address"


def test_an_unknown_event_is_refused_with_the_known_ones(world: World) -> None:
    reply = world.user.call("POST", "/api/v1/notifications", body=b'{"events": ["lunch"]}')
    assert (reply.status, reply.code) == (400, "notify_event_unknown")
    assert b"long_queue" in reply.body


def test_a_choice_is_shown_and_is_nobody_elses(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    a_person(world, "shown@example.com", events=["failed", "ended"], mail=True)
    view = world.user.get("/api/v1/notifications")["notifications"]
    assert (view["events"], view["mail"]) == (["ended", "failed"], True)
    assert view["email"] == "shown@example.com"
    other = world.caller("other").get("/api/v1/notifications")["notifications"]
    assert (other["events"], other["mail"], other["email"]) == ([], False, "")


def test_a_test_says_what_came_of_it(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    reply = world.user.call("POST", "/api/v1/notifications/test")
    assert reply.code == "notify_nothing_chosen"
    a_person(world, "test@example.com", mail=True)
    answer = world.user.post("/api/v1/notifications/test")
    assert answer["deliveries"] == [{"kind": "mail", "ok": True, "message": ""}]
    assert len(mails_to(postman, "test@example.com")) == 1
    a_person(world, "nobody@example.com")
    (failed,) = world.user.post("/api/v1/notifications/test")["deliveries"]
    assert not failed["ok"] and "550" in failed["message"]
    run_loop(world)
    assert {row.tries for row in rows(world)} == {1}
    for _ in range(notify.TESTS_AN_HOUR - 2):
        world.user.post("/api/v1/notifications/test")
    reply = world.user.call("POST", "/api/v1/notifications/test")
    assert (reply.status, reply.code) == (429, "notify_test_often")


# -- the table ------------------------------------------------------------------------------------


def test_old_rows_go_and_what_waits_stays(make_world: MakeWorld, postman: SmtpServer) -> None:
    world = make_world(change=with_mail(postman.port))
    put_token(world, "old@example.com")
    sender = run_loop(world)
    world.clock.move(days=31)
    world.deps.db.write(
        lambda tx: outbox.put(
            tx, kind=WEBHOOK, owner="x", address="", template="t", params={}, lang="en",
            now=world.clock() - timedelta(days=40), id="waits", taken_for=timedelta(days=60),
        )
    )  # fmt: skip
    run_loop(world, sender)
    assert world.deps.db.read(lambda tx: tx.all("select id from outbox")) == [("waits",)]


def test_the_memory_of_who_chose_is_renewed_without_a_note(world: World) -> None:
    """A note may be lost with a connection: after a minute it is looked up anyway."""
    deps, now = world.deps, world.clock()

    def has(at: Any) -> bool:
        return deps.db.write(lambda tx: deps.choosers.has(tx, deps.db, "someone", at))

    assert not has(now)
    deps.db.write(lambda tx: tx.execute("update users set notify = '{}' where id = 'someone'"))
    assert not has(now)
    assert has(now + choices.REMEMBERED)


def a_message() -> Any:
    from email.message import EmailMessage  # noqa: PLC0415 - only these tests need it

    message = EmailMessage()
    message["Subject"] = "hi"
    message.set_content("hi")
    return message


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def a_certificate(path: Path) -> Path:
    """A self-signed certificate of `localhost` with its key, in one file."""
    import subprocess  # noqa: PLC0415 - only these tests need it

    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(path), "-out", str(path) + ".crt", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    assert ssl.create_default_context(cafile=f"{path}.crt") is not None
    return path
