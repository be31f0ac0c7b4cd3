"""Mail from the event to the mailbox: a real database, a real SMTP server in its own process."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import notification_prefs, outbox, tokens
from paddlecloud.db.tables.outbox import MAIL, WEBHOOK
from paddlecloud.model.errors import ConfigError, Retry
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.loops.outbox import BACK_OFF, LOOP, Sender
from paddlecloud.server.loops.runner import Runner
from paddlecloud.server.services.notifications import mail
from paddlecloud.server.settings import Mail, Settings
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.mail_world import (
    HOST,
    a_certificate,
    mails_to,
    rows,
    run_loop,
    with_mail,
)
from tests.integration.server.smtp import SmtpServer, text_of
from tests.integration.server.world import World, eventually
from tests.ports import free_port

PASSWORD = "smtp-password-canary"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


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


# -- the token ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lang", "address", "subject"),
    [
        ("zh", "zhang@example.com", "PaddleCloud：您的密钥"),
        ("en", "ann@example.com", "PaddleCloud: your token"),
        ("zh", "张三@163.com", "PaddleCloud：您的密钥"),
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
    world = make_world(change=with_mail(free_port()))
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
    world = make_world(change=with_mail(free_port()))
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
        def find(tx: Tx) -> frozenset[str]:
            return deps.caches.subscribers.load(at, lambda: notification_prefs.subscribers(tx))

        return "someone" in deps.db.write(find)

    assert not has(now)
    deps.db.write(lambda tx: tx.execute("update users set notify = '{}' where id = 'someone'"))
    assert not has(now)
    assert has(now + notification_prefs.CACHE_TTL)


def a_message() -> Any:
    from email.message import EmailMessage  # noqa: PLC0415 - only these tests need it

    message = EmailMessage()
    message["Subject"] = "hi"
    message.set_content("hi")
    return message
