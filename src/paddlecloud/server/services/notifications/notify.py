"""Notifications about jobs by mail and webhook, for users who chose them.

The change of a job and the outbox row about it are written in one transaction, so neither exists
without the other; the outbox loop sends the rows. Each event of an attempt is notified once. Events
without a change of a job, a long wait and a nearly exhausted quota, are found by a periodic check
(`check_waits_and_quota`).
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import UNSET

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, notification_prefs, outbox
from paddlecloud.db.tables.notification_prefs import Choice
from paddlecloud.db.tables.outbox import MAIL, WEBHOOK, Outgoing, Params
from paddlecloud.messages import render
from paddlecloud.model.errors import (
    ConfigError,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    TooMany,
)
from paddlecloud.model.jobs.job import Job, Reason
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server import encryption
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.notifications import (
    Delivery,
    NotificationsAnswer,
    NotificationsRequest,
    NotificationsTest,
    NotificationsView,
)
from paddlecloud.server.services.accounts import quota

STARTED, ENDED, FAILED = "started", "ended", "failed"
LONG_QUEUE, QUOTA_80 = "long_queue", "quota_80"
EVENTS = (STARTED, ENDED, FAILED, LONG_QUEUE, QUOTA_80)
TEST = "test"
LONG_QUEUES_A_DAY = 20
"""A thousand waiting jobs of one user are not a thousand mails."""
TESTS_AN_HOUR = 10
TEST_LEASE = timedelta(minutes=5)


def on_change(tx: Tx, deps: Deps, before: Job, after: Job, now: datetime) -> None:
    """Notify the owner of a change of a job, in the transaction that writes the change."""
    event = event_of(before, after)
    if event is None or not deps.settings.notifications.enabled:
        return
    # This transaction sees the newest state, so the result may be cached.
    subscribers = deps.caches.subscribers.load(now, partial(notification_prefs.subscribers, tx))
    if after.owner not in subscribers:
        return
    choice = notification_prefs.get_choice(tx, after.owner)
    if choice is not None and event in choice.wishes.events:
        reason = after.failure.reason if after.failure and event == FAILED else None
        params = _about(after, event, now, reason, choice.lang)
        _put(tx, deps, choice, event, params, f"{after.id}.{after.attempt}", now)


def event_of(before: Job, after: Job) -> str | None:
    """Which event a change is; most changes are none."""
    if after.final and not before.final:
        return ENDED if after.state in (JobState.SUCCESS, JobState.KILLED) else FAILED
    began = after.state is JobState.RUNNING and before.state is not JobState.RUNNING
    return STARTED if began else None


def check_waits_and_quota(deps: Deps, now: datetime) -> int:
    """Notify of long waits and nearly exhausted quotas; the number of new rows."""
    if not deps.settings.notifications.enabled:
        return 0
    found = 0
    for user_id in sorted(deps.db.read(notification_prefs.subscribers)):
        choice = deps.db.read(partial(notification_prefs.get_choice, user_id=user_id))
        if choice is not None and LONG_QUEUE in choice.wishes.events:
            found += _long_queues(deps, choice, now)
        if choice is not None and QUOTA_80 in choice.wishes.events:
            found += _quota(deps, choice, now)
    return found


def show(deps: Deps, user_id: str) -> NotificationsAnswer:
    return NotificationsAnswer(notifications=_view(_choice(deps, user_id)))


def choose(deps: Deps, user_id: str, request: NotificationsRequest) -> NotificationsAnswer:
    """Change what is given; an empty `webhook` removes it. A new webhook comes with its secret,
    which is returned only once; the database has it encrypted.
    """
    if not deps.settings.notifications.enabled:
        raise Refused("notify_off")
    events, mail, webhook = request.events, request.mail, request.webhook
    for each in events or ():
        if each not in EVENTS:
            raise Invalid("notify_event_unknown", value=each[:100], known=", ".join(EVENTS))
    secret = f"whsec_{secrets.token_hex(24)}"
    if webhook:
        _check_webhook(deps, webhook)
        sealed = encryption.seal(deps.server_key, secret.encode(), _context(user_id))

    def write(tx: Tx) -> NotificationsAnswer:
        choice = notification_prefs.get_choice(tx, user_id)
        assert choice is not None  # a caller who signs is a user
        wishes = choice.wishes
        if events is not UNSET:
            wishes = replace(wishes, events=tuple(each for each in EVENTS if each in events))
        if mail is not UNSET:
            _check_mail(deps, choice, mail)
            wishes = replace(wishes, mail=mail)
        new_secret = None
        if webhook and webhook != wishes.webhook:
            new_secret = secret
            wishes = replace(wishes, webhook=webhook, webhook_secret=sealed, webhook_off=None)
        if webhook == "":
            outbox.drop(tx, user_id, WEBHOOK)
            wishes = replace(wishes, webhook=None, webhook_secret=None, webhook_off=None)
        notification_prefs.save_wishes(tx, user_id, wishes)
        view = _view(replace(choice, wishes=wishes))
        return NotificationsAnswer(notifications=view, webhook_secret=new_secret)

    return deps.db.write(write)


def test(deps: Deps, user_id: str, lang: str) -> NotificationsTest:
    """Send a test by every chosen channel now; the result of each."""
    now = deps.clock()
    choice = _choice(deps, user_id)
    channels = _channels(deps, choice)
    if not channels:
        raise Refused("notify_nothing_chosen")
    key = secrets.token_hex(16)
    params: Params = {"event": TEST, "at": _iso(now)}

    def write(tx: Tx) -> list[Outgoing | None]:
        if _count_notified(tx, user_id, TEST, now - timedelta(hours=1)) >= TESTS_AN_HOUR:
            raise TooMany("notify_test_often", limit=TESTS_AN_HOUR, seconds=3600)
        _put(tx, deps, choice, TEST, params, key, now, taken_for=TEST_LEASE)
        return [outbox.get(tx, f"{kind}.{TEST}.{key}") for kind, _ in channels]

    rows = deps.db.write(write)
    return NotificationsTest(
        deliveries=[_deliver_test(deps, row, lang) for row in rows if row is not None]
    )


def deliver(deps: Deps, row: Outgoing, now: datetime) -> None:
    """Send one row, or raise why not."""
    if row.kind == MAIL:
        from paddlecloud.server.services.notifications import mail  # noqa: PLC0415 - 30 ms, only when one is sent

        return mail.deliver(deps, row, now)
    from paddlecloud.server.services.notifications import _webhook as webhook  # noqa: PLC0415 - the same

    choice = deps.db.read(lambda tx: notification_prefs.get_choice(tx, row.owner))
    if choice is None or choice.wishes.webhook is None or choice.wishes.webhook_secret is None:
        raise Refused("webhook_off")
    url, private = choice.wishes.webhook, deps.settings.notifications.webhook_private
    secret = encryption.unseal(
        keys(deps), choice.wishes.webhook_secret, _context(row.owner)
    ).decode()
    try:
        proxies = deps.settings.proxies
        webhook.deliver(url, secret, row, now, private=private, proxies=proxies)
    except NotFound as gone:
        why = str(gone)
        deps.db.write(lambda tx: notification_prefs.switch_webhook_off(tx, row.owner, url, why))
        raise


def keys(deps: Deps) -> tuple[bytes, ...]:
    """The server's key and its previous keys, for what was encrypted with one of them."""
    return (deps.server_key, *deps.old_keys)


def _long_queues(deps: Deps, choice: Choice, now: datetime) -> int:
    since = now - deps.settings.notifications.long_queue
    owner = choice.user_id
    unnotified = partial(
        notification_prefs.waiting_unnotified,
        owner=owner,
        since=since,
        event=LONG_QUEUE,
        limit=LONG_QUEUES_A_DAY,
    )
    found = deps.db.read(unnotified)
    if not found or not _channels(deps, choice):
        return 0

    def write(tx: Tx) -> int:
        count = _count_notified(tx, owner, LONG_QUEUE, now - timedelta(days=1))
        late = [jobs.get_job(tx, job_id) for job_id in found[: max(0, LONG_QUEUES_A_DAY - count)]]
        rows = 0
        for job in late:
            if job is not None and job.pool is None and job.waiting_since <= since:
                params = _about(job, LONG_QUEUE, now, job.reason, choice.lang)
                params["waited"] = int((now - job.waiting_since).total_seconds() // 60)
                key = f"{job.id}.{job.attempt}"
                rows += _put(tx, deps, choice, LONG_QUEUE, params, key, now)
        return rows

    return deps.db.write(write)


def _quota(deps: Deps, choice: Choice, now: datetime) -> int:
    owner = choice.user_id
    today = deps.db.read(lambda tx: quota.today(deps, tx, owner, now))
    percent = deps.settings.notifications.quota_percent
    if today.limit is None or today.used * 100 < today.limit * percent:
        return 0
    params: Params = {
        "event": QUOTA_80,
        "at": _iso(now),
        "used": int(today.used),
        "limit": today.limit,
        "renews": today.renews,
    }
    day = now.astimezone(deps.settings.zone).date().isoformat()
    key = f"{owner}.{day}"
    ids = [f"{kind}.{QUOTA_80}.{key}" for kind, _ in _channels(deps, choice)]
    if deps.db.read(lambda tx: all(outbox.get(tx, id) is not None for id in ids)):
        return 0
    return deps.db.write(lambda tx: _put(tx, deps, choice, QUOTA_80, params, key, now))


def _count_notified(tx: Tx, owner: str, event: str, since: datetime) -> int:
    """How often an event was sent, by the channel that sent it most often."""
    counts = (outbox.count_since(tx, owner, f"{kind}_{event}", since) for kind in (MAIL, WEBHOOK))
    return max(counts)


def _put(
    tx: Tx,
    deps: Deps,
    choice: Choice,
    event: str,
    params: Params,
    key: str,
    now: datetime,
    *,
    taken_for: timedelta | None = None,
) -> int:
    """One row for every chosen channel; the number of new rows."""
    return sum(
        outbox.put(
            tx,
            kind=kind,
            owner=choice.user_id,
            address=address,
            template=f"{kind}_{event}",
            params=params,
            lang=choice.lang,
            now=now,
            id=f"{kind}.{event}.{key}",
            taken_for=taken_for,
        )
        for kind, address in _channels(deps, choice)
    )


def _channels(deps: Deps, choice: Choice) -> list[tuple[str, str]]:
    """Kind and address of every channel that is chosen and possible.

    The row of a webhook has only the host: the rest of such a URL is often a secret.
    """
    from paddlecloud.server.services.notifications import _webhook as webhook  # noqa: PLC0415 - for those who chose only

    channels = []
    if choice.wishes.mail and choice.email and deps.settings.mail.host:
        channels.append((MAIL, choice.email))
    if choice.wishes.webhook:
        channels.append((WEBHOOK, webhook.parse(choice.wishes.webhook, private=True).host))
    return channels


def _about(
    job: Job, event: str, now: datetime, reason: Reason | None, lang: str
) -> dict[str, str | int]:
    at = job.finished_at if job.final else job.running_since if event == STARTED else now
    return {
        "event": event,
        "job_id": job.id,
        "job_name": job.spec.job_name,
        "state": job.state.value,
        "attempt": job.attempt,
        "at": _iso(at or now),
        "reason": render(reason.code, reason.params, lang) if reason else "",
    }


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _check_mail(deps: Deps, choice: Choice, wanted: bool) -> None:
    if wanted and not deps.settings.mail.host:
        raise ConfigError("mail_not_configured")
    if wanted and not choice.email:
        raise Refused("notify_no_address")


def _check_webhook(deps: Deps, url: str) -> None:
    """Refuse at once what could never be delivered; each delivery checks again."""
    from paddlecloud.server.services.notifications import _webhook as webhook  # noqa: PLC0415 - for those who choose only

    private = deps.settings.notifications.webhook_private
    webhook.resolve(webhook.parse(url, private=private), private=private)


def _choice(deps: Deps, user_id: str) -> Choice:
    choice = deps.db.read(lambda tx: notification_prefs.get_choice(tx, user_id))
    assert choice is not None  # a caller who signs is a user
    return choice


def _view(choice: Choice) -> NotificationsView:
    wishes = choice.wishes
    return NotificationsView(
        events=list(wishes.events),
        known_events=list(EVENTS),
        mail=wishes.mail,
        email=choice.email or "",
        webhook=wishes.webhook or "",
        webhook_off=wishes.webhook_off or "",
    )


def _context(user_id: str) -> bytes:
    return f"webhook {user_id}".encode()


def _deliver_test(deps: Deps, row: Outgoing, lang: str) -> Delivery:
    """Send a test once; it is not tried again."""
    now = deps.clock()
    try:
        deliver(deps, row, now)
    except PaddleCloudError as error:
        reason = reason_of(error)
        deps.db.write(lambda tx: outbox.give_up(tx, row.id, reason, now), durable=False)
        return Delivery(kind=row.kind, ok=False, message=error.text(lang))
    deps.db.write(lambda tx: outbox.sent(tx, row.id, now), durable=False)
    return Delivery(kind=row.kind, ok=True, message="")


def reason_of(error: PaddleCloudError) -> Reason:
    """The error as it is kept: its code and its values."""
    params = {
        key: value if isinstance(value, str | int | float) else str(value)
        for key, value in error.params.items()
    }
    return Reason(code=error.code, params=params)
