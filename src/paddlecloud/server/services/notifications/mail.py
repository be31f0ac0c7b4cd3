"""Composes mails and sends them by SMTP. Retries are the work of the outbox.

The secret key of a token is derived here, at the moment of sending, and goes nowhere but into the
mail: not into the database, not into a log, not into an error. Of a response of the mail server
only the status is kept, because it may repeat the mail. The Message-ID is derived from the row, so
a mail that was sent twice can be recognized.
"""

from __future__ import annotations

import hashlib
import ipaddress
import smtplib
import ssl
from collections.abc import Callable
from datetime import datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTPUTF8
from email.utils import format_datetime, parseaddr

from paddlecloud.db.tables import tokens
from paddlecloud.db.tables.outbox import Outgoing
from paddlecloud.messages.mail import letter
from paddlecloud.model.errors import ConfigError, Invalid, PaddleCloudError, Refused, Retry
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.settings import Mail

TOKEN = "mail_token"


def deliver(deps: Deps, row: Outgoing, now: datetime) -> None:
    """Send one mail. Retry and ConfigError may work later; anything else never will."""
    mail = deps.settings.mail
    if not mail.host:
        raise ConfigError("mail_not_configured")
    send(mail, compose(deps, row, now), mailbox(row.address))


def compose(deps: Deps, row: Outgoing, now: datetime) -> EmailMessage:
    """The whole mail of a row, its secrets included."""
    values = {**row.params, "server": deps.settings.public_host or deps.settings.name}
    if "at" in values:
        at = datetime.fromisoformat(str(values["at"]))
        values["at"] = deps.settings.format_time(at, "seconds")
    if row.template == TOKEN:
        values |= _token_values(deps, row)
    subject, body = letter(row.template, values, row.lang)
    sender = _sender(deps.settings.mail)
    message = EmailMessage(policy=SMTPUTF8)
    try:
        message["From"] = sender
        message["To"] = _address(mailbox(row.address))
        message["Subject"] = _plain(subject)
    except (MessageError, ValueError) as error:
        raise Invalid("mail_address_bad", address=row.address[:200]) from error
    message["Date"] = format_datetime(now)
    message["Message-ID"] = message_id(row.id, sender.domain)
    message["Auto-Submitted"] = "auto-generated"
    message["Content-Language"] = row.lang
    message.set_content(_plain(body, keep="\n"), charset="utf-8", cte="base64")
    return message


def message_id(row_id: str, domain: str) -> str:
    return f"<{hashlib.sha256(row_id.encode()).hexdigest()[:40]}@{domain}>"


def mailbox(address: str) -> str:
    """The address as mail servers want it: the domain in ASCII, the part before it as it is."""
    local, at, domain = address.rpartition("@")
    bad = not (local and at and domain) or any(letter in ' <>,;:"\\()[]\x7f' for letter in address)
    if bad or not address.isprintable():
        raise Invalid("mail_address_bad", address=address[:200])
    try:
        return f"{local}@{domain.encode('idna').decode()}"
    except UnicodeError as error:
        raise Invalid("mail_address_bad", address=address[:200]) from error


def send(mail: Mail, message: EmailMessage, to: str) -> None:
    """Send a message to the SMTP server; the class of an error shows whether a retry may help."""
    if mail.user and mail.security == "none" and not _is_this_machine(mail.host):
        raise ConfigError("mail_login_plain", host=mail.host)
    sender = _sender(mail).addr_spec
    _translated(mail, lambda: _send(mail, message, sender, to))


def probe(mail: Mail) -> None:
    """Connect and log in without sending anything, to check the settings."""
    if mail.user and mail.security == "none" and not _is_this_machine(mail.host):
        raise ConfigError("mail_login_plain", host=mail.host)

    def hello() -> None:
        with _connect(mail) as server:
            _log_in(mail, server)

    _translated(mail, hello)


def _token_values(deps: Deps, row: Outgoing) -> dict[str, str]:
    ak = str(row.params["ak"])
    if deps.db.read(lambda tx: tokens.find_token(tx, ak)) is None:
        raise Refused("mail_token_gone")
    url = str(row.params.get("url") or deps.settings.http.public_url)
    section = f"\n[openapi]\nhost = {url}\n" if url else ""
    return {"sk": secret_of(deps.server_key, ak), "openapi": section}


def _sender(mail: Mail) -> Address:
    name, address = parseaddr(mail.sender or mail.user)
    local, at, domain = address.rpartition("@")
    if not at:
        local, domain = local or address or "paddlecloud", mail.host
    return Address(name or "PaddleCloud", local, domain.encode("idna").decode())


def _address(address: str) -> Address:
    local, _, domain = address.rpartition("@")
    return Address("", local, domain)


def _plain(text: str, keep: str = "") -> str:
    """Without control letters, which names of jobs may hold and mail may not."""
    return "".join(each if each.isprintable() or each in keep else " " for each in text)


def _translated(mail: Mail, work: Callable[[], None]) -> None:
    """Run `work` and translate its errors."""
    try:
        work()
    except smtplib.SMTPException as error:
        raise _smtp_error(mail.host, error) from None
    except UnicodeError:
        # Its text would hold the password that could not be encoded.
        raise ConfigError("mail_login_failed", host=mail.host, status="not ASCII") from None
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise Retry("mail_unreachable", host=mail.host, reason=reason) from None


def _send(mail: Mail, message: EmailMessage, sender: str, to: str) -> None:
    with _connect(mail) as server:
        _log_in(mail, server)
        if not to.isascii() and not server.has_extn("smtputf8"):
            raise smtplib.SMTPNotSupportedError("smtputf8")
        server.send_message(message, sender, [to])


def _connect(mail: Mail) -> smtplib.SMTP:
    seconds = mail.timeout.total_seconds()
    name = _sender(mail).domain
    if mail.security == "tls":
        context = ssl.create_default_context()
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            mail.host, mail.port, name, timeout=seconds, context=context
        )
    else:
        server = smtplib.SMTP(mail.host, mail.port, name, timeout=seconds)
    try:
        server.ehlo_or_helo_if_needed()
        if mail.security == "starttls":
            server.starttls(context=ssl.create_default_context())
            server.ehlo()
    except BaseException:
        server.close()
        raise
    return server


def _log_in(mail: Mail, server: smtplib.SMTP) -> None:
    if mail.user:
        server.login(mail.user, mail.password)


def _smtp_error(host: str, error: smtplib.SMTPException) -> PaddleCloudError:
    match error:
        case smtplib.SMTPRecipientsRefused():
            status = next(iter(error.recipients.values()))[0]
            kind = Refused if status >= 500 else Retry
            return kind("mail_recipient_refused", host=host, status=status)
        case smtplib.SMTPDataError():
            kind = Refused if error.smtp_code >= 500 else Retry
            return kind("mail_refused", host=host, status=error.smtp_code)
        case smtplib.SMTPNotSupportedError() if str(error) == "smtputf8":
            return Refused("mail_address_utf8", host=host)
        case smtplib.SMTPAuthenticationError():
            return ConfigError("mail_login_failed", host=host, status=error.smtp_code)
        case smtplib.SMTPResponseException():
            return Retry("mail_refused", host=host, status=error.smtp_code)
        case smtplib.SMTPNotSupportedError():
            reason = "it does not offer what mail.security and mail.user need"
            return Retry("mail_unreachable", host=host, reason=reason)
        case _:
            return Retry("mail_unreachable", host=host, reason=type(error).__name__)


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
