"""What the tests of mail and of notifications share: a world with a mail server, and its mails."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddlecloud.db.tables import outbox
from paddlecloud.db.tables.outbox import Outgoing
from paddlecloud.server.loops.outbox import Sender
from paddlecloud.server.settings import Mail, Settings
from paddlecloud.testing import SignedCaller
from tests.integration.server.smtp import SmtpServer
from tests.integration.server.world import World

HOST = "127.0.0.1"


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
    """Every row of `someone`, in order."""
    theirs = "select id from outbox where owner = 'someone' order by created_at, id"
    found = world.deps.db.read(lambda tx: [outbox.get(tx, str(id)) for (id,) in tx.all(theirs)])
    return [row for row in found if row]


def mails_to(smtp: SmtpServer, address: str) -> list[tuple[Any, dict[str, Any]]]:
    both = zip(smtp.mails(), smtp.envelopes(), strict=False)  # another may come in between
    return [(message, facts) for message, facts in both if facts["to"] == [address]]


def a_certificate(path: Path) -> Path:
    """A self-signed certificate of `localhost` with its key, in one file."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(path), "-out", str(path) + ".crt", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    assert ssl.create_default_context(cafile=f"{path}.crt") is not None
    return path
