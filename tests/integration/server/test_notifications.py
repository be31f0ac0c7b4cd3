"""Notifications: who chose what is told once, by a mail that a real SMTP server takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from paddlecloud.db.tables import outbox
from paddlecloud.db.tables.outbox import MAIL
from paddlecloud.model.policy.quota import Plan
from paddlecloud.server.loops.outbox import Sender
from paddlecloud.server.services.admin import gauges
from paddlecloud.server.services.notifications import notify
from paddlecloud.server.settings import Settings
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.mail_world import a_person, mails_to, rows, run_loop, with_mail
from tests.integration.server.smtp import SmtpServer, text_of
from tests.integration.server.world import World

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
    assert notify.check_waits_and_quota(world.deps, world.clock()) == notify.LONG_QUEUES_A_DAY
    assert notify.check_waits_and_quota(world.deps, world.clock()) == 0
    world.clock.move(days=1, minutes=1)
    assert notify.check_waits_and_quota(world.deps, world.clock()) == 5


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
    assert notify.check_waits_and_quota(world.deps, world.clock()) == 0
    world.deps.db.write(lambda tx: ran(tx, 8.5))
    assert notify.check_waits_and_quota(world.deps, world.clock()) == 1
    assert notify.check_waits_and_quota(world.deps, world.clock()) == 0
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
    counted = world.deps.metrics.render(gauges.measure(world.deps, None)).decode()
    assert 'paddlecloud_outbox_sent_total{kind="mail"} 12.0\n' in counted
    assert 'paddlecloud_outbox_waiting{kind="mail"} 0.0\n' in counted


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
