"""A real SMTP server in a process of its own, for tests: `with SmtpServer(directory) as smtp`.

It keeps every mail as a file and answers as its arguments say. Run as a program it is the server.
"""

from __future__ import annotations

import argparse
import email.policy
import json
import signal
import ssl
import subprocess
import sys
import time
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any


class SmtpServer:
    """The process, and what it was given."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._directory = directory
        self._flags = flags
        self.port = 0

    def __enter__(self) -> SmtpServer:
        self._directory.mkdir(parents=True, exist_ok=True)
        program = [sys.executable, __file__, str(self._directory), *self._flags]
        self._process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        assert told, "the SMTP server did not start"
        self.port = int(told)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)

    def envelopes(self) -> list[dict[str, Any]]:
        """Sender, recipients, options and login of each mail, in the order of arrival."""
        paths = sorted(self._directory.glob("*.eml"))
        return [json.loads(path.with_suffix(".json").read_text()) for path in paths]

    def mails(self) -> list[EmailMessage]:
        parser = BytesParser(EmailMessage, policy=email.policy.default)
        paths = sorted(self._directory.glob("*.eml"))
        return [parser.parsebytes(path.read_bytes()) for path in paths]

    def wait(self, count: int, seconds: float = 60.0) -> list[EmailMessage]:
        deadline = time.monotonic() + seconds
        while len(self.mails()) < count:
            assert time.monotonic() < deadline, f"{len(self.mails())} of {count} mails came"
            time.sleep(0.02)
        return self.mails()


def text_of(message: EmailMessage) -> str:
    body = message.get_body()
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def main() -> None:
    from aiosmtpd.controller import Controller  # noqa: PLC0415 - only this process needs it
    from aiosmtpd.smtp import SMTP, AuthResult  # noqa: PLC0415 - the same

    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--refuse", default="")
    parser.add_argument("--status", default="550 no such user here")
    parser.add_argument("--data", default="250 taken")
    parser.add_argument("--certificate")
    parser.add_argument("--starttls", action="store_true")
    parser.add_argument("--password", default="")
    parser.add_argument("--no-utf8", action="store_true")
    args = parser.parse_args()

    class Keep:
        count = 0

        async def handle_RCPT(
            self, server: Any, session: Any, envelope: Any, address: str, options: Any
        ) -> str:
            if args.refuse and args.refuse in address:
                return str(args.status)
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            if not args.data.startswith("250"):
                return str(args.data)
            self.count += 1
            stem = args.directory / f"{self.count:04}"
            facts = {
                "sender": envelope.mail_from,
                "to": envelope.rcpt_tos,
                "options": list(envelope.mail_options),
                "tls": server.transport.get_extra_info("ssl_object") is not None,
                "login": session.auth_data is not None,
            }
            stem.with_suffix(".json").write_text(json.dumps(facts))
            scratch = stem.with_suffix(".new")
            scratch.write_bytes(envelope.original_content or envelope.content)
            scratch.rename(stem.with_suffix(".eml"))
            return "250 taken"

    def authenticate(
        server: Any, session: Any, envelope: Any, mechanism: str, data: Any
    ) -> AuthResult:
        good = data.password == args.password.encode()
        return AuthResult(success=good, handled=good, auth_data=data.login if good else None)

    context = None
    if args.certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(args.certificate)

    class Server(Controller):
        def factory(self) -> SMTP:
            more: dict[str, Any] = {}
            if args.password:
                needs_tls = args.starttls
                more = {"authenticator": authenticate, "auth_require_tls": needs_tls}
            return SMTP(
                self.handler,
                hostname="mail.test",
                enable_SMTPUTF8=not args.no_utf8,
                tls_context=context if args.starttls else None,
                require_starttls=args.starttls,
                **more,
            )

    server = Server(
        Keep(),
        hostname="127.0.0.1",
        port=free_port(),
        ssl_context=None if args.starttls else context,
        ready_timeout=60,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    try:
        signal.pause()
    finally:
        server.stop()


def free_port() -> int:
    import socket  # noqa: PLC0415 - only this process needs it

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
