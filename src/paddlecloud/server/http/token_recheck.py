"""Re-checks during long responses that the caller's key has not been revoked.

A request is authenticated once, but a log may be followed for days. Routes with endless responses
check at every step; that reads the database only after a notification that the key has changed.
"""

from __future__ import annotations

from dataclasses import replace

from paddlecloud.model.errors import Unauthenticated
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Notification, Topic, Waiter
from paddlecloud.server.http.auth import Caller, find_caller
from paddlecloud.server.http.routing import Cut


class KeyRecheck(Waiter):
    """The caller of one long response. Used in a `with`, it is notified of changes of the key, also
    while the response waits for nothing. Waiters of the response include `topic` to wake up too."""

    __slots__ = ("_caller", "_db", "_stale", "topic")

    def __init__(self, deps: Deps, caller: Caller) -> None:
        self.topic: Topic = ("token", caller.ak)
        super().__init__(deps.hub, (self.topic,))
        self._db = deps.db
        self._caller = caller
        # Notifications between the authentication and the `with` were missed.
        self._stale = True

    def deliver(self, notification: Notification) -> None:
        self._stale = True

    def caller(self) -> Caller:
        """The caller with the present rights of the key; Unauthenticated if it is not valid any
        more. To be called in a thread."""
        if self._stale:
            self._stale = False  # before the read: a later notification asks for another one
            ak = self._caller.ak
            found = self._db.read(lambda tx: find_caller(tx, ak))
            if found is None:
                self._stale = True
                raise Unauthenticated("auth_unknown_key", ak=ak)
            self._caller = replace(self._caller, role=found.role, scope=found.scope)
        return self._caller

    def check(self) -> None:
        """Cut a response in progress if the rights of the key have changed; the client then gets
        the reason by its next request. To be called in a thread."""
        before = self._caller
        try:
            same = self.caller() == before
        except Unauthenticated:
            same = False
        if not same:
            raise Cut("the key of the caller has changed")
