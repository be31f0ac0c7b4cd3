"""Webhooks against real HTTP receivers: signed, retried, cut off, and never into the network."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.tables import notification_prefs, outbox
from paddlecloud.model.errors import NotFound, Refused, Retry
from paddlecloud.net.proxy import Proxies
from paddlecloud.server import encryption
from paddlecloud.server.loops.outbox import BACK_OFF, Sender
from paddlecloud.server.services.notifications import _webhook as webhook
from paddlecloud.server.services.notifications._webhook import Target
from paddlecloud.server.settings import Settings
from paddlecloud.testing import NOON
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.mail_world import a_certificate, rows, run_loop
from tests.integration.server.world import World
from tests.ports import free_port
from tests.proxies import proxying
from tests.unit.server.services.notifications.test_mail import a_row


class Receiver(ThreadingHTTPServer):
    """Keeps every request; answers with the statuses it is given, the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = [200]
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.extra: dict[str, str] = {}
        self.drip = threading.Event()
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?team=1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        receiver = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {key.lower(): value for key, value in self.headers.items()}
        receiver.got.append((self.path, headers, body))
        if receiver.drip.is_set():
            self._drip()
            return
        statuses = receiver.statuses
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        self.send_response(status)
        for key, value in receiver.extra.items():
            self.send_header(key, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def _drip(self) -> None:
        """One letter of a header at a time: no single read ever times out."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
        while not self.server.stopped.wait(0.05):
            self.wfile.write(b"a")

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.stopped.set()
    server.shutdown()
    server.server_close()


def private(settings: Settings) -> Settings:
    notes = replace(settings.notifications, webhook_private=True)
    return replace(settings, notifications=notes)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(change=private)


def hooked(world: World, url: str, events: tuple[str, ...] = ("ended", "failed")) -> str:
    """Choose this webhook; its secret."""
    answer = world.user.post("/api/v1/notifications", {"webhook": url, "events": list(events)})
    assert answer["webhook_secret"]
    return str(answer["webhook_secret"])


def test_the_end_of_a_job_is_posted_with_a_signature(world: World, receiver: Receiver) -> None:
    secret = hooked(world, receiver.url)
    job_id, order = world.placed(job_name="训练")
    world.agent.run(order)
    run_loop(world)
    ((path, headers, body),) = receiver.got
    assert path == "/hook?team=1"
    event = json.loads(body)
    assert event == {
        "delivery": f"webhook.ended.{job_id}.1",
        "owner": "someone",
        "event": "ended",
        "job_id": job_id,
        "job_name": "训练",
        "state": "success",
        "attempt": 1,
        "at": event["at"],
        "reason": "",
    }
    at = headers["x-paddlecloud-timestamp"]
    signed = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["x-paddlecloud-signature"] == f"v1={signed}"
    assert headers["x-paddlecloud-event"] == "ended"
    assert headers["x-paddlecloud-delivery"] == f"webhook.ended.{job_id}.1"
    assert headers["content-type"] == "application/json"
    assert headers["host"] == f"127.0.0.1:{receiver.server_port}"


def test_the_reason_of_a_failure_is_told(world: World, receiver: Receiver) -> None:
    hooked(world, receiver.url)
    _, order = world.placed()
    world.agent.run(order, exit_code=7)
    run_loop(world)
    event = json.loads(receiver.got[0][2])
    assert (event["event"], event["state"]) == ("failed", "failed")
    assert "7" in event["reason"]


def test_a_receiver_that_fails_is_asked_again_with_the_same_id(
    world: World, receiver: Receiver
) -> None:
    receiver.statuses = [500, 302, 200]
    receiver.extra = {"location": receiver.url + "&elsewhere"}
    hooked(world, receiver.url)
    _, order = world.placed()
    world.agent.run(order)
    sender = Sender()
    for wait in (*BACK_OFF[:2], BACK_OFF[0]):
        run_loop(world, sender)
        world.clock.move(seconds=wait.total_seconds())
    assert [path for path, _, _ in receiver.got] == ["/hook?team=1"] * 3
    assert len({headers["x-paddlecloud-delivery"] for _, headers, _ in receiver.got}) == 1
    assert len({headers["x-paddlecloud-timestamp"] for _, headers, _ in receiver.got}) == 3
    (row,) = rows(world)
    assert row.tries == 3 and row.sent_at is not None


def test_what_waits_for_the_same_receiver_waits_with_it(world: World, receiver: Receiver) -> None:
    receiver.statuses = [503]
    hooked(world, receiver.url, ("started", "ended"))
    _, order = world.placed()
    world.agent.start(order)
    world.agent.exit(order, 0)
    run_loop(world)
    assert sorted(row.tries for row in rows(world)) == [0, 1]
    assert len(receiver.got) == 1


def test_410_switches_the_webhook_off(world: World, receiver: Receiver) -> None:
    receiver.statuses = [410]
    hooked(world, receiver.url)
    _, order = world.placed()
    world.agent.run(order)
    run_loop(world)
    (row,) = rows(world)
    assert row.given_up_at is not None
    assert row.last_error is not None and row.last_error.code == "webhook_gone"
    view = world.user.get("/api/v1/notifications")["notifications"]
    assert (view["webhook"], view["events"]) == ("", ["ended", "failed"])
    assert "410" in view["webhook_off"]
    world.release()
    _, order = world.placed()
    world.agent.run(order)
    assert world.count("outbox") == 1


def test_nobody_there_is_tried_again(world: World) -> None:
    hooked(world, f"http://127.0.0.1:{free_port()}/")
    _, order = world.placed()
    world.agent.run(order)
    run_loop(world)
    (row,) = rows(world)
    assert row.given_up_at is None
    assert row.last_error is not None and row.last_error.code == "webhook_unreachable"


def test_the_secret_is_told_once_and_sealed(world: World, receiver: Receiver) -> None:
    secret = hooked(world, receiver.url)
    assert "webhook_secret" not in world.user.get("/api/v1/notifications")["notifications"]
    again = world.user.post("/api/v1/notifications", {"webhook": receiver.url})
    assert again["webhook_secret"] is None
    ((stored,),) = world.deps.db.read(
        lambda tx: tx.all("select notify from users where id = 'someone'")
    )
    assert secret not in stored
    sealed = json.loads(stored)["webhook_secret"]
    key = world.deps.server_key
    assert encryption.unseal((key,), sealed, b"webhook someone").decode() == secret
    world.user.post("/api/v1/notifications", {"webhook": ""})
    assert hooked(world, receiver.url) != secret


def test_a_secret_sealed_with_an_older_key_still_signs(world: World, receiver: Receiver) -> None:
    secret = hooked(world, receiver.url)
    _, order = world.placed()
    world.agent.run(order)
    old = world.deps.server_key
    renewed = replace(world.deps, server_key=b"n" * 32, old_keys=(old,))
    sender = Sender()
    sender.tick(renewed, world.clock())
    assert sender.wait(30)
    _, headers, body = receiver.got[0]
    at = int(headers["x-paddlecloud-timestamp"])
    assert headers["x-paddlecloud-signature"] == webhook.signature(secret, at, body)


def test_ending_a_webhook_drops_what_waits_for_it(world: World, receiver: Receiver) -> None:
    hooked(world, receiver.url)
    _, order = world.placed()
    world.agent.run(order)
    world.user.post("/api/v1/notifications", {"webhook": ""})
    run_loop(world)
    assert (receiver.got, world.count("outbox")) == ([], 0)


def test_a_test_is_posted_at_once(world: World, receiver: Receiver) -> None:
    hooked(world, receiver.url)
    answer = world.user.post("/api/v1/notifications/test")
    assert answer["deliveries"] == [{"kind": "webhook", "ok": True, "message": ""}]
    assert json.loads(receiver.got[0][2])["event"] == "test"


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://8.8.8.8/", "webhook_plain"),
        ("https://127.0.0.1/", "webhook_private"),
        ("https://localhost/", "webhook_private"),
        ("https://[::1]/", "webhook_private"),
        ("https://10.0.0.1/", "webhook_private"),
        ("https://169.254.169.254/latest", "webhook_private"),
        ("https://[::ffff:192.168.0.1]/", "webhook_private"),
        ("https://2130706433/", "webhook_private"),
        ("https://user:canary@8.8.8.8/", "webhook_url"),
        ("file:///etc/passwd", "webhook_url"),
    ],
)
def test_an_address_inside_is_refused_when_it_is_chosen(
    make_world: MakeWorld, url: str, code: str
) -> None:
    world = make_world()
    body = json.dumps({"webhook": url}).encode()
    reply = world.user.call("POST", "/api/v1/notifications", body=body)
    assert reply.code == code
    assert b"canary" not in reply.body
    assert world.user.get("/api/v1/notifications")["notifications"]["webhook"] == ""


def test_a_name_that_moves_inside_later_is_refused_when_it_is_called(
    make_world: MakeWorld, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the name was public when it was chosen. Only the resolver is played."""
    world = make_world()
    answers = ["8.8.8.8"]
    real = socket.getaddrinfo

    def resolver(host: str, port: int, *more: Any, **how: Any) -> list[Any]:
        if host != "rebinding.example":
            return real(host, port, *more, **how)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[0], port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    hooked(world, f"https://rebinding.example:{receiver.server_port}/")
    answers[0] = "127.0.0.1"
    _, order = world.placed()
    world.agent.run(order)
    run_loop(world)
    (row,) = rows(world)
    assert row.given_up_at is not None
    assert row.last_error is not None and row.last_error.code == "webhook_private"
    assert receiver.got == []


def test_the_address_that_was_checked_is_the_one_that_is_called(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved once; a second answer would not matter."""
    asked: list[Any] = []

    def resolver(host: Any, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        assert len(asked) == 1 or host in ("127.0.0.1", b"127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    url = f"http://name.example:{receiver.server_port}/"
    webhook.deliver(url, "s", a_row(), NOON, private=True)
    assert receiver.got[0][1]["host"] == f"name.example:{receiver.server_port}"
    assert asked.count("name.example") == 1


def test_an_answer_letter_by_letter_is_cut(receiver: Receiver) -> None:
    receiver.drip.set()
    target = webhook.parse(receiver.url, private=True)
    with pytest.raises(Retry, match=r"no answer within 0\.4 s"):
        webhook.post(target, ["127.0.0.1"], b"{}", {"Host": "x"}, seconds=0.4)


def test_a_handshake_that_never_comes_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        target = Target(host="localhost", port=port, path="/", secure=True)
        with pytest.raises(Retry, match=r"no answer within 0\.3 s"):
            webhook.post(target, ["127.0.0.1"], b"{}", {"Host": "x"}, seconds=0.3)


def test_an_answer_that_is_not_http_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as odd:

        def answer() -> None:
            peer, _ = odd.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        target = webhook.parse(f"http://127.0.0.1:{odd.getsockname()[1]}/", private=True)
        with pytest.raises(Retry, match="not HTTP"):
            webhook.post(target, ["127.0.0.1"], b"{}", {"Host": "x"})
        thread.join(10)


def test_tls_is_for_the_name_in_the_address(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = a_certificate(tmp_path / "both.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    url = f"https://localhost:{receiver.server_port}/"
    with pytest.raises(Retry, match="certificate does not hold"):
        webhook.deliver(url, "s", a_row(), NOON, private=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    webhook.deliver(url, "s", a_row(), NOON, private=True)
    assert len(receiver.got) == 1
    target = Target(host="other.example", port=receiver.server_port, path="/", secure=True)
    with pytest.raises(Retry, match="certificate does not hold"):
        webhook.post(target, ["127.0.0.1"], b"{}", {"Host": "other.example"})


def test_gone_and_refused_are_told_apart(receiver: Receiver) -> None:
    receiver.statuses = [410]
    with pytest.raises(NotFound):
        webhook.deliver(receiver.url, "s", a_row(), NOON, private=True)
    with pytest.raises(Refused):
        webhook.deliver(receiver.url, "s", a_row(), NOON, private=False)


def test_a_webhook_chosen_meanwhile_is_not_switched_off(world: World, receiver: Receiver) -> None:
    hooked(world, receiver.url)
    off = world.deps.db.write(
        lambda tx: notification_prefs.switch_webhook_off(
            tx, "someone", "https://old.example/", "gone"
        )
    )
    assert off is False
    assert world.user.get("/api/v1/notifications")["notifications"]["webhook"] == receiver.url


def test_a_slow_receiver_of_one_user_does_not_hold_up_another(
    world: World, receiver: Receiver
) -> None:
    """One delivery at a time for each owner: many notes to a slow one take one place only."""
    now = world.clock()

    def put(tx: Any) -> None:
        for number in range(10):
            for owner in ("slow", "fast") if number == 9 else ("slow",):
                outbox.put(
                    tx, kind=outbox.WEBHOOK, owner=owner, address="", template="webhook_ended",
                    params={}, lang="en", now=now, id=f"{owner}{number}",
                )  # fmt: skip

    world.deps.db.write(put)
    taken = world.deps.db.write(
        lambda tx: outbox.take_due(tx, now, 4, kind=outbox.WEBHOOK, lease=BACK_OFF[2])
    )
    assert {row.owner for row in taken} == {"slow", "fast"}


def test_a_webhook_behind_a_proxy_goes_to_the_address_that_was_checked(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = a_certificate(tmp_path / "both.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    target = Target(host="hook.example", port=443, path="/", secure=True)
    with proxying(receiver.server_port) as proxy:
        proxies = Proxies(https=proxy.url)
        with pytest.raises(Retry, match="certificate does not hold"):
            webhook.post(target, ["93.184.216.34"], b"{}", {}, proxies=proxies)
        assert proxy.seen == ["CONNECT 93.184.216.34:443 HTTP/1.1"]
    with proxying(1, refusal=403) as proxy, pytest.raises(Retry, match="refuses connections"):
        webhook.post(target, ["93.184.216.34"], b"{}", {}, proxies=Proxies(https=proxy.url))
