"""Whether somebody who is answered for long may still be: a key can be taken away meanwhile.

A request is admitted once, and a log is followed for days. So whoever answers without an end asks
here at each step; the database is asked only after a note that this key may have changed.
"""

from __future__ import annotations

from dataclasses import replace

from paddlecloud.db.tables import tokens
from paddlecloud.model.errors import Unauthenticated
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Notification, Topic, Waiter
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.routing import Cut


class Stay(Waiter):
    """One caller, from `with` on. It hears of its key whatever else is waited for: where there is
    nothing to wait for either, in the middle of a long log. `topic` wakes others who wait."""

    __slots__ = ("_caller", "_db", "_stale", "topic")

    def __init__(self, deps: Deps, caller: Caller) -> None:
        self.topic: Topic = ("token", caller.ak)
        super().__init__(deps.hub, (self.topic,))
        self._db = deps.db
        self._caller = caller
        # Nobody listened between the request's admission and the `with`.
        self._stale = True

    def deliver(self, notification: Notification) -> None:
        self._stale = True

    def caller(self) -> Caller:
        """Who calls, as their key has it now; the refusal of a new request if it is good no more.
        Work for a thread."""
        if self._stale:
            self._stale = False  # before the look: what is told from now on asks for another one
            ak = self._caller.ak
            found = self._db.read(lambda tx: tokens.find_token(tx, ak))
            if found is None:
                self._stale = True
                raise Unauthenticated("auth_unknown_key", ak=ak)
            role, scope = found.role.value, found.scope.value
            self._caller = replace(self._caller, role=role, scope=scope)
        return self._caller

    def check(self) -> None:
        """Cut an answer that has begun unless it would begin now as it did: whoever follows comes
        back, and hears why not. Work for a thread."""
        before = self._caller
        try:
            same = self.caller() == before
        except Unauthenticated:
            same = False
        if not same:
            raise Cut("the key of who follows has changed")
