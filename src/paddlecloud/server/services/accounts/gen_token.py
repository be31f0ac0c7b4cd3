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
from paddlecloud.db.tables import outbox, rate_limits, tokens, users
from paddlecloud.db.tables.tokens import Origin
from paddlecloud.db.tables.users import User
from paddlecloud.model import email_address
from paddlecloud.model.errors import Refused, TooMany
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller, network_of
from paddlecloud.server.schemas.accounts import GenTokenAnswer, GenTokenRequest
from paddlecloud.server.services.accounts.audit import record

TEMPLATE = "mail_token"
NAME = "gen_token"
HOUR = timedelta(hours=1)
UNUSED = timedelta(days=7)
"""An unused mailed key of this age is deleted when the next one is requested."""


def request(deps: Deps, caller: Caller, asked: GenTokenRequest) -> GenTokenAnswer:
    """Have a new key mailed to an address; the address in the form that it is known by."""
    if not deps.settings.team:
        raise Refused("gen_token_not_team")
    if not deps.settings.mail.host:
        raise Refused("gen_token_no_mail")
    email = email_address.canonical(asked.email)
    allowed, domain = deps.settings.tokens.domains, email_address.domain_of(email)
    if allowed and domain not in map(email_address.canonical_domain, allowed):
        raise Refused("email_domain", domain=domain, domains=", ".join(allowed))
    now = deps.clock()
    ak = secrets.token_hex(16)

    def store(tx: Tx) -> None:
        _check_rates(tx, deps, email, caller.source, now)
        user = users.user_of_email(tx, email)
        if user is None:
            user_id = email_address.id_for(email, lambda name: users.get_user(tx, name) is None)
            user = User(id=user_id, email=email, lang=asked.lang or deps.settings.lang)
            users.create_user(tx, user, now)
            record(tx, caller, now, "user.create", user.id, {"email": email})
        tokens.drop_unused_mailed(tx, user.id, now - UNUSED)
        tokens.create_token(tx, ak, user.id, now, name=NAME, origin=Origin.MAIL)
        record(tx, caller, now, "token.mail", user.id, {"ak": ak, "email": email})
        if user.disabled_at is None:
            outbox.put(
                tx,
                kind=outbox.MAIL,
                owner=user.id,
                address=email,
                template=TEMPLATE,
                params={"ak": ak, "user_id": user.id},
                lang=asked.lang or user.lang,
                now=now,
            )

    deps.db.write(store)
    return GenTokenAnswer(email=email)


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
