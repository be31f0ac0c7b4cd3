"""How a mail is written, what may be a receiver, when a try follows; and sealed secrets."""

from __future__ import annotations

import ipaddress
import string
from datetime import timedelta

import pytest

from paddlecloud.db.tables.outbox import Outgoing
from paddlecloud.messages.mail import MAIL_TEXTS, letter
from paddlecloud.model.errors import Internal, Invalid, Refused
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server import encryption
from paddlecloud.server.loops.outbox import BACK_OFF, next_try
from paddlecloud.server.services.notifications import _webhook as webhook
from paddlecloud.server.services.notifications import mail, notify
from paddlecloud.server.services.notifications.notify import EVENTS
from paddlecloud.testing import NOON, a_job
from tests.unit.test_house_rules import sentence_problems

KEY, OTHER = b"k" * 32, b"o" * 32
DAY = timedelta(days=1)


def a_row(**changes: object) -> Outgoing:
    plain: dict[str, object] = {
        "id": "webhook.ended.job-1.1",
        "kind": "webhook",
        "owner": "ann",
        "address": "hooks.example",
        "template": "webhook_ended",
        "params": {"event": "ended", "job_id": "job-1"},
        "lang": "en",
        "created_at": NOON,
        "tries": 1,
    }
    return Outgoing(**(plain | changes))  # type: ignore[arg-type]


# -- letters --------------------------------------------------------------------------------------


def test_every_letter_exists_in_both_languages_with_the_same_values() -> None:
    assert [
        p for code, (en, zh) in MAIL_TEXTS.items() for p in sentence_problems(code, en, zh)
    ] == []


def test_every_event_has_its_letter() -> None:
    wanted = {f"mail_{name}_{part}" for name in (*EVENTS, "token", "test") for part in PARTS}
    assert set(MAIL_TEXTS) == wanted


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", [*EVENTS, "token", "test"])
def test_a_letter_can_be_written(name: str, lang: str) -> None:
    names = {
        field
        for part in PARTS
        for _, field, _, _ in string.Formatter().parse(MAIL_TEXTS[f"mail_{name}_{part}"][0])
        if field
    }
    values = {field: f"<{field}>" for field in names} | {"server": "cloud.example"}
    subject, body = letter(f"mail_{name}", values, lang)
    assert "\n" not in subject and "PaddleCloud" in subject
    assert all(f"<{field}>" in subject + body for field in names)
    assert "cloud.example" in body


PARTS = ("subject", "body")


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("ann@example.com", "ann@example.com"),
        ("张三@163.com", "张三@163.com"),
        ("ann@例子.cn", "ann@xn--fsqu00a.cn"),
    ],
)
def test_an_address_as_mail_servers_want_it(address: str, want: str) -> None:
    assert mail.mailbox(address) == want


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ann",
        "@example.com",
        "ann@",
        "a b@example.com",
        "a@b\r\nRCPT TO:<x@y>",
        "<a@b>",
        "a,b@c",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(Invalid) as caught:
        mail.mailbox(address)
    assert caught.value.code == "mail_address_bad"


def test_a_message_id_is_that_of_the_row() -> None:
    first = mail.message_id("mail.ended.job-1.1", "example.com")
    assert first == mail.message_id("mail.ended.job-1.1", "example.com")
    assert first != mail.message_id("mail.ended.job-1.2", "example.com")
    assert first.startswith("<") and first.endswith("@example.com>") and " " not in first


# -- webhooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200",
        "0.0.0.0", "224.0.0.1", "240.0.0.1", "192.0.2.1", "::1", "::", "fe80::1", "fec0::1",
        "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a00:1",
        "2002:7f00:1::", "2001:0:a00:1:0:0:f5ff:fffe",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public(address: str) -> None:
    assert not webhook.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8"])
def test_a_public_address(address: str) -> None:
    assert webhook.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("https://a.example", ("a.example", 443, "/", "a.example")),
        ("https://a.example:8443/x?y=1", ("a.example", 8443, "/x?y=1", "a.example:8443")),
        ("https://[2001:db8::1]/x", ("2001:db8::1", 443, "/x", "[2001:db8::1]")),
    ],
)
def test_an_address_of_a_webhook(url: str, want: tuple[str, int, str, str]) -> None:
    target = webhook.parse(url, private=False)
    assert (target.host, target.port, target.path, target.host_header) == want


@pytest.mark.parametrize(
    "url",
    [
        "", "a.example", "ftp://a.example", "https://", "https://u:pw@a.example/", "https://a b/",
        "https://a.example/#x", "https://a.example:99999/", "https://a.example/\r\nX: y",
        "https://[::1", "https://a.example/" + "x" * 2000, "javascript:alert(1)",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        webhook.parse(url, private=True)
    assert caught.value.code == "webhook_url"
    assert "pw" not in str(caught.value)


def test_plain_http_needs_the_setting() -> None:
    with pytest.raises(Refused, match="not https"):
        webhook.parse("http://a.example/secret-path", private=False)
    assert webhook.parse("http://a.example/", private=True).port == 80


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0", "2130706433", "0x7f.1"])
def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    target = webhook.parse(f"https://{host}/", private=False)
    with pytest.raises(Refused) as caught:
        webhook.resolve(target, private=False)
    assert caught.value.code == "webhook_private"


def test_a_signature_covers_time_and_body() -> None:
    body = webhook.body_of(a_row())
    first = webhook.signature("s", 1, body)
    assert first.startswith("v1=") and len(first) == 67
    others = {
        webhook.signature("s", 2, body),
        webhook.signature("s", 1, body + b" "),
        webhook.signature("t", 1, body),
    }
    assert first not in others and len(others) == 3


# -- events and tries -----------------------------------------------------------------------------


def test_tries_come_later_and_later_until_the_time_is_over() -> None:
    waits = [(next_try(a_row(tries=n), NOON, DAY) or NOON) - NOON for n in range(1, 8)]
    assert waits == [*BACK_OFF, BACK_OFF[-1], BACK_OFF[-1]]
    assert next_try(a_row(tries=3), NOON + DAY, DAY) is None


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ("schedule", "running", "started"),
        ("running", "success", "ended"),
        ("killing", "killed", "ended"),
        ("running", "failed", "failed"),
        ("running", "timeout", "failed"),
        ("queue", "schedule timeout", "failed"),
        ("running", "killing", None),
        ("running", "schedule", None),
        ("schedule", "queue", None),
    ],
)
def test_which_changes_are_events(before: str, after: str, want: str | None) -> None:
    state = {word.value: word for word in JobState}
    first, second = a_job(state=state[before]), a_job(state=state[after])
    assert notify.event_of(first, second) == want


# -- the vault ------------------------------------------------------------------------------------


def test_what_is_sealed_opens_with_its_key_and_context_only() -> None:
    sealed = encryption.seal(KEY, b"a secret", b"webhook ann")
    assert b"a secret" not in sealed.encode()
    assert encryption.unseal((KEY,), sealed, b"webhook ann") == b"a secret"
    assert encryption.unseal((OTHER, KEY), sealed, b"webhook ann") == b"a secret"
    with pytest.raises(Internal) as caught:
        encryption.unseal((KEY,), sealed, b"webhook bob")
    assert caught.value.code == "vault_damaged"
    with pytest.raises(Internal) as caught:
        encryption.unseal((OTHER,), sealed, b"webhook ann")
    assert caught.value.code == "vault_key_unknown"


def test_the_same_secret_is_sealed_differently_each_time() -> None:
    assert encryption.seal(KEY, b"x", b"") != encryption.seal(KEY, b"x", b"")


def test_a_changed_letter_is_noticed() -> None:
    sealed = encryption.seal(KEY, b"a secret", b"")
    for place in range(len(sealed)):
        changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
        with pytest.raises(Internal):
            encryption.unseal((KEY,), changed, b"")


@pytest.mark.parametrize("sealed", ["", "v1", "v1..", "v2.aa.bb", "v1.zz.####"])
def test_what_was_never_sealed_does_not_open(sealed: str) -> None:
    with pytest.raises(Internal):
        encryption.unseal((KEY,), sealed, b"")


def test_sealing_follows_the_standard() -> None:
    """HKDF-SHA256 with a check of RFC 5869: the same key as the library's own."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - only this test
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - only this test

    salt = bytes(range(16))
    want = HKDF(SHA256(), 32, salt, b"paddlecloud vault").derive(KEY)
    assert encryption._derived(KEY, salt) == want
