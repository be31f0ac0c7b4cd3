"""The agent's side of an exchange: short reports over one request that stays open.

A report by a request of its own always works, and a signed request is most of what a short one
costs. So while reports follow each other an exchange is opened beside them. Nobody waits for it to
open: behind a proxy that passes a body on only when it is whole it never does. When it breaks, or
is too narrow for a report, the report goes by a request of its own: it may come twice.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from paddlecloud.agent.server_link.channel import SERVER_HEADER, TIMEOUT, refusal_of
from paddlecloud.model.errors import PaddleCloudError, Unreachable
from paddlecloud.model.protocol.bce_auth import CONTENT_SHA256, NONCE
from paddlecloud.model.protocol.report_frames import LENGTH, LONGEST, SEALED, Seals, key_of
from paddlecloud.net.endpoint import sign_request, target_of
from paddlecloud.net.http1 import Connection

if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.agent.server_link.channel import Link
    from paddlecloud.net.endpoint import Endpoint
    from paddlecloud.net.http1 import Conversation

_PATH = "/agent/reports"
#: Reports that are not further apart than this, in seconds, are worth an exchange.
_APART = 5.0
#: So long an exchange may take to be connected, and then to open, in seconds.
_CONNECT = 2.0
_OPENING = 10.0
#: If it does not, the next one is tried after a pause, twice as long each time: a server that just
#: restarts is soon there, a proxy that never lets one through is asked rarely.
_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 600.0


class Exchange:
    """Belongs to the thread that reports. Times are monotonic seconds."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._open: _Opened | None = None
        self._followed_at = -math.inf
        self._not_before = 0.0
        self._pause = 0.0

    def ask(self, report: bytes, now: float) -> dict[str, Any] | None:
        """What the server answers; None: the report has to go by a request of its own."""
        open_ = self._open
        if open_ is None or len(report) > LONGEST or not self._is_ready(open_, now):
            return None
        try:
            answer = open_.ask(report)
        except Unreachable as error:
            self.close()
            if error.code != "server_timeout":
                return None
            self._link.lost(open_.route)
            raise
        self._link.reached()
        if "error" in answer:
            raise refusal_of(int(answer["status"]), answer["error"])
        return answer

    def follow(self, now: float) -> None:
        """A report has just been answered by a request of its own: is an exchange worth it?"""
        apart, self._followed_at = now - self._followed_at, now
        if self._open is not None or apart > _APART or now < self._not_before:
            return
        try:
            self._open = _Opened(self._link, now)
        except PaddleCloudError:
            self._give_up(now)

    def close(self) -> None:
        if self._open is not None:
            self._open.talk.close()
        self._open = None

    def _is_ready(self, open_: _Opened, now: float) -> bool:
        config = self._link.config
        if open_.route != self._link.route or (open_.ak, open_.sk) != (config.ak, config.sk):
            self.close()
            return False
        if open_.ready or not open_.talk.is_answered:
            if now - open_.begun_at > _OPENING and not open_.ready:
                self._give_up(now)
            return open_.ready
        if open_.is_ours():
            self._pause = 0.0
        else:
            self._give_up(now)
        return open_.ready

    def _give_up(self, now: float) -> None:
        self.close()
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
        self._not_before = now + self._pause


class _Opened:
    """One request that stays open."""

    def __init__(self, link: Link, now: float) -> None:
        self.route = link.route
        self._endpoint: Endpoint = link.endpoint(self.route)
        where = self._endpoint
        self.ak, self.sk = where.ak, where.sk
        connection = Connection(where.host, where.port, where.tls, _CONNECT)
        target = target_of(_PATH)
        headers = {CONTENT_SHA256: SEALED}
        sign_request(where, connection.authority, "POST", target, headers)
        self._seals = Seals(key_of(where.sk, headers[NONCE]))
        self._number = 0
        self.talk: Conversation = connection.converse("POST", target, headers, timeout=TIMEOUT)
        self.begun_at = now
        self.ready = False

    def is_ours(self) -> bool:
        """Whether it was our server that answered, and that it may be spoken to from now on."""
        try:
            answer = self.talk.response
        except PaddleCloudError:
            return False
        boot = answer.headers.get(SERVER_HEADER, "")
        strange = bool(self._endpoint.boot) and boot != self._endpoint.boot
        self.ready = answer.status == 200 and not strange
        return self.ready

    def ask(self, report: bytes) -> dict[str, Any]:
        self.talk.say(self._seals.sealed(self._number, report))
        self._number += 1
        length = int.from_bytes(self.talk.hear(LENGTH), "big")
        try:
            answer = json.loads(self.talk.hear(length))
        except ValueError as error:
            address = f"{self._endpoint.host}:{self._endpoint.port}"
            detail = "its answer is no JSON"
            raise Unreachable("server_malformed", address=address, detail=detail) from error
        return answer if isinstance(answer, dict) else {}
