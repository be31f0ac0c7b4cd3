"""`gen_token`: mails a new key to an address.

The caller is not authenticated. So the response is the same for every address, and a request with
another person's address does not revoke their keys: older keys are revoked at the first use of the
new one (`auth.note_use`), for which one has to read the mail. The secret key is made when the mail
is sent, and is not stored.
"""

from __future__ import annotations

import math
import secrets
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import audit, outbox, rate_limits, tokens, users
from paddlecloud.db.tables.tokens import Origin
from paddlecloud.db.tables.users import User
from paddlecloud.model import email_address
from paddlecloud.model.errors import Refused, TooMany
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import ANONYMOUS, network_of

TEMPLATE = "mail_token"
NAME = "gen_token"
HOUR = timedelta(hours=1)
UNUSED = timedelta(days=7)
"""An unused mailed key of this age is deleted when the next one is requested."""


def request(deps: Deps, address: str, lang: str | None, source: str) -> str:
    """Have a new key mailed to an address; the address in the form that it is known by."""
    _check_server(deps)
    email = email_address.canonical(address)
    _check_domain(deps, email)
    now = deps.clock()
    ak = secrets.token_hex(16)

    def store(tx: Tx) -> None:
        _check_rates(tx, deps, email, source, now)
        user = users.user_of_email(tx, email)
        if user is None:
            user = _enrol(tx, deps, email, lang, now)
            _note(tx, "user.create", user, {"email": email}, source, now)
        tokens.drop_unused_mailed(tx, user.id, now - UNUSED)
        tokens.create_token(tx, ak, user.id, now, name=NAME, origin=Origin.MAIL)
        _note(tx, "token.mail", user, {"ak": ak, "email": email}, source, now)
        if user.disabled_at is None:
            params = {"ak": ak, "user_id": user.id}
            _mail(tx, user, email, params, lang or user.lang, now)

    deps.db.write(store)
    return email


def _check_server(deps: Deps) -> None:
    if not deps.settings.team:
        raise Refused("gen_token_not_team")
    if not deps.settings.mail.host:
        raise Refused("gen_token_no_mail")


def _check_domain(deps: Deps, email: str) -> None:
    allowed = deps.settings.tokens.domains
    domain = email_address.domain_of(email)
    if allowed and domain not in map(email_address.canonical_domain, allowed):
        raise Refused("email_domain", domain=domain, domains=", ".join(allowed))


def _check_rates(tx: Tx, deps: Deps, email: str, source: str, now: datetime) -> None:
    """Asked in the transaction that grants: no two requests can both be the last one allowed."""
    rules = deps.settings.tokens
    for name, key, limit in (
        ("gen_token_source", network_of(source), rules.per_source),
        ("gen_token_email", email, rules.per_address),
    ):
        wait = rate_limits.allow_rate(tx, name, key, limit, HOUR, now)
        if wait is not None:
            minutes = max(1, math.ceil(wait.total_seconds() / 60))
            raise TooMany("gen_token_often", limit=limit, minutes=minutes)


def _enrol(tx: Tx, deps: Deps, email: str, lang: str | None, now: datetime) -> User:
    user_id = email_address.id_for(email, lambda name: users.get_user(tx, name) is None)
    user = User(id=user_id, email=email, lang=lang or deps.settings.tokens.lang)
    users.create_user(tx, user, now)
    return user


def _mail(tx: Tx, user: User, email: str, params: dict[str, str], lang: str, now: datetime) -> None:
    outbox.put(
        tx,
        kind=outbox.MAIL,
        owner=user.id,
        address=email,
        template=TEMPLATE,
        params=params,
        lang=lang,
        now=now,
    )


def _note(
    tx: Tx, action: str, user: User, detail: dict[str, str], source: str, now: datetime
) -> None:
    audit.record(
        tx,
        at=now,
        actor=ANONYMOUS,
        source=source,
        action=action,
        target=user.id,
        detail=detail,
    )
