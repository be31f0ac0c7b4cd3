"""Join tokens: a new agent exchanges one for an id and a key of its own.

A token for a pool is random and shown once. The token for an attempt is derived from the server's
key, so that starting the same attempt again hands out the same one. Only digests are stored.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from datetime import datetime, timedelta
from typing import NoReturn

from paddlecloud.backends.base import Credentials, JoinedByAgents, KeepsAgent
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import (
    agent_keys,
    agents,
    attempts,
    join_tokens,
    machines,
    rate_limits,
)
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.join_tokens import JoinToken
from paddlecloud.db.tables.machines import Machine
from paddlecloud.model.errors import Conflict, Invalid, Refused, TooMany, Unauthenticated
from paddlecloud.model.jobs.job import Attempt
from paddlecloud.server.deps import CONTACT_WITHIN, Deps
from paddlecloud.server.http.auth import Caller, network_of, secret_of
from paddlecloud.server.schemas.agent import AgentJoinAnswer, AgentJoinRequest
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.stores.base import CanPresign

HOUR = timedelta(hours=1)
FAILURES = 20
"""Requests with a wrong token from one network address within an hour."""
ATTEMPT_TOKEN_LIFETIME = timedelta(days=1)
"""Renewed while the attempt is being started."""
USES_PER_NODE = 3
"""Joins of one machine of an attempt: it may be restarted before it has stored its key."""


def create_token(deps: Deps, caller: Caller, pool: str, *, uses: int, lifetime: timedelta) -> str:
    """A new token by which machines join a pool."""
    backend = deps.backends.get(pool)
    if not isinstance(backend, JoinedByAgents) or isinstance(backend, KeepsAgent):
        raise Refused("join_pool", pool=pool[:100])
    now = deps.clock()
    token = secrets.token_hex(32)
    row = JoinToken(digest=_digest(token), pool=pool, uses_left=uses, expires_at=now + lifetime)

    def store(tx: Tx) -> None:
        join_tokens.put(tx, row, now)
        detail = {"uses": uses, "expires_at": row.expires_at.isoformat()}
        record(tx, caller, now, "join_token.create", pool, detail)

    deps.db.write(store)
    return token


def credentials_for(deps: Deps, attempt: Attempt) -> Credentials:
    """What the agents of an attempt need to connect: a token for this attempt only."""
    now = deps.clock()
    subject = f"join:{attempt.job_id}:{attempt.number}:{attempt.fence}"
    token = hmac.new(deps.server_key, subject.encode(), hashlib.sha256).hexdigest()
    row = JoinToken(
        digest=_digest(token),
        pool=attempt.pool,
        job_id=attempt.job_id,
        attempt=attempt.number,
        uses_left=USES_PER_NODE * len({replica.node for replica in attempt.replicas}),
        expires_at=now + ATTEMPT_TOKEN_LIFETIME,
    )
    known = deps.db.read(lambda tx: join_tokens.find(tx, row.digest, now))
    half = ATTEMPT_TOKEN_LIFETIME / 2
    if known is None or known.uses_left == 0 or known.expires_at - now < half:
        # After a loss of power the attempt is started again, and the token stored again.
        deps.db.write(lambda tx: join_tokens.put(tx, row, now), durable=False)
    return Credentials(url=deps.url, join_token=token)


def join(deps: Deps, caller: Caller, asked: AgentJoinRequest) -> AgentJoinAnswer:
    """Give a new agent its key. Idempotent: the same token and `instance` get the same key, and
    count as one use."""
    now = deps.clock()
    ak = hmac.new(asked.token.encode(), asked.instance.encode(), hashlib.sha256).hexdigest()[:32]

    def admit(tx: Tx) -> AgentIdentity | None:
        digest = _digest(asked.token)
        known = agent_keys.joined_with(tx, ak, digest)
        if known is not None:
            return known
        token = join_tokens.find(tx, digest, now)
        if token is None or not join_tokens.use(tx, digest):
            return None
        agent = AgentIdentity(
            ak=ak,
            agent_id=f"agent-{ak[:12]}",
            node=_node(tx, deps, token, asked.node or f"node-{ak[:12]}", now),
            pool=token.pool,
            job_id=token.job_id,
            attempt=token.attempt,
        )
        if agent.job_id is None:
            row = Machine(name=agent.node, pool=agent.pool, labels=asked.labels, joined_at=now)
            machines.put(tx, row)
        agent_keys.revoke_keys(tx, agent.node, now)
        if not agent_keys.create_key(tx, agent, now, join_token=digest):
            return None  # this very key was revoked
        detail = {"agent": agent.agent_id, "pool": agent.pool, "job": agent.job_id}
        record(tx, caller, now, "agent.join", agent.node, detail)
        return agent

    agent = deps.db.write(admit)
    if agent is None:
        _refuse(deps, caller.source, now)
    return AgentJoinAnswer(
        agent_id=agent.agent_id,
        node=agent.node,
        pool=agent.pool,
        ak=agent.ak,
        sk=secret_of(deps.server_key, agent.ak),
        store_url=deps.settings.store.endpoint if isinstance(deps.store, CanPresign) else "",
    )


def _node(tx: Tx, deps: Deps, token: JoinToken, node: str, now: datetime) -> str:
    """The machine of a new agent: one of its attempt, or one that no other agent has."""
    if token.job_id is not None and token.attempt is not None:
        attempt = attempts.get_attempt(tx, token.job_id, token.attempt)
        nodes = {replica.node for replica in attempt.replicas} if attempt is not None else set()
        if node not in nodes:
            raise Invalid("join_node_unknown", node=node, known=", ".join(sorted(nodes)))
        return node
    other = agent_keys.agent_of(tx, node)
    contact = agents.get_agent(tx, node)
    # A machine that was reinstalled gets its name back once its previous agent is gone.
    is_gone = contact is None or now - contact.seen_at > CONTACT_WITHIN
    is_own = other is not None and other.pool == token.pool and other.job_id is None
    listed = any(each.id == node for nodes in deps.nodes().values() for each in nodes)
    if (other is not None or listed) and not (is_own and is_gone):
        raise Conflict("join_node_taken", node=node)
    return node


def _refuse(deps: Deps, source: str, now: datetime) -> NoReturn:
    network = network_of(source)
    wait = deps.db.write(
        lambda tx: rate_limits.allow_rate(tx, "agent_join", network, FAILURES, HOUR, now)
    )
    if wait is not None:
        minutes = max(1, math.ceil(wait.total_seconds() / 60))
        raise TooMany("join_often", limit=FAILURES, minutes=minutes)
    raise Unauthenticated("join_token_unknown")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
