"""The server's side of an exchange: answers the reports of a request that stays open, in turn.

What a report means is not known here. The exchange ends when the agent leaves, when its key is not
good any more, and when the server goes down; whatever was not answered then is reported again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import tokens
from paddlecloud.model.errors import Internal, Invalid, PaddleCloudError
from paddlecloud.model.protocol import bce_auth
from paddlecloud.model.protocol.report_frames import SEALED, Reports, framed, key_of
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import ANYTHING, Waiter
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import Call

log = logging.getLogger(__name__)

TakeIn = Callable[[bytes], Awaitable[object]]
"""What a report is answered with, as a value of JSON."""
_LONG = 3600.0


class Exchange(Response):
    """The answer that goes on for as long as reports come."""

    media_type = "application/octet-stream"

    def __init__(self, deps: Deps, call: Call, take_in: TakeIn) -> None:
        if call.headers[bce_auth.CONTENT_SHA256] != SEALED:
            raise Invalid("body_invalid", detail=f"{bce_auth.CONTENT_SHA256} is not {SEALED}")
        # Not Response's: that would announce the length of an empty body.
        self.status_code = 200
        self.background = None
        self.init_headers({"connection": "close", "transfer-encoding": "chunked"})
        self._deps = deps
        self._call = call
        self._take_in = take_in
        secrets = (secret_of(key, call.caller.ak) for key in (deps.server_key, *deps.old_keys))
        nonce = call.headers[bce_auth.NONCE]
        self._reports = Reports(key_of(secret, nonce) for secret in secrets)

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        with self._deps.hub.waiter(("token", self._call.caller.ak)) as waiter:
            # Nobody listened between the request's admission and the `with`.
            good = await in_thread(self._deps.db.read, self._is_known)
            await send(start)
            if good:
                await self._serve(waiter, receive, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve(self, waiter: Waiter, receive: Receive, send: Send) -> None:
        """Until there are no more reports, or something else is heard."""
        answering = asyncio.create_task(self._answer_all(receive, send))
        answering.add_done_callback(lambda _: waiter.ring(ANYTHING))
        try:
            while not await waiter.wait(_LONG):
                pass
        finally:
            answering.cancel()
        await asyncio.wait((answering,))
        if not answering.cancelled():
            answering.result()

    def _is_known(self, tx: Tx) -> bool:
        return tokens.find_token(tx, self._call.caller.ak) is not None

    async def _answer_all(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            try:
                for report in self._reports.feed(message.get("body", b"")):
                    await send(_body(await self._answer(report)))
            except PaddleCloudError as error:  # of the stream: behind it nothing can be read
                await send(_body(self._refusal(error)))
                return
            if not message.get("more_body", False):
                return

    async def _answer(self, report: bytes) -> object:
        try:
            return await self._take_in(report)
        except PaddleCloudError as error:
            return self._refusal(error)
        except Exception:
            log.exception("a report of request %s failed", self._call.request_id)
            return self._refusal(Internal("internal", request_id=self._call.request_id))

    def _refusal(self, error: PaddleCloudError) -> dict[str, object]:
        wire = error.to_wire(self._call.lang) | {"request_id": self._call.request_id}
        return {"status": error.status, "error": wire}


def _body(answer: object) -> dict[str, object]:
    frame = framed(msgspec.json.encode(answer))
    return {"type": "http.response.body", "body": frame, "more_body": True}
