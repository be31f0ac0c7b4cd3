"""The retry policy: which failures are worth repeating, how often, and after which pauses.

The transport applies TRANSPORT to idempotent requests. Above it a transfer has one loop of its own
that resumes what is left (RESUME); nothing else repeats a request.
"""

from __future__ import annotations

from time import monotonic, sleep

from paddlecloud.model.errors import PaddleCloudError, Retry, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeVar

    T = TypeVar("T")


class RetryPolicy:
    """How often something is repeated, and after which pauses."""

    __slots__ = ("attempts", "budget", "first_pause", "never", "once")

    def __init__(
        self,
        attempts: int,
        first_pause: float,
        *,
        budget: float = float("inf"),
        never: Collection[str] = (),
        once: Collection[str] = (),
    ) -> None:
        self.attempts = attempts
        """In all, the first one included."""
        self.first_pause = first_pause
        """Seconds; each further pause is twice as long, and all of them vary by a fifth."""
        self.budget = budget
        """Seconds after the first attempt in which another one may begin."""
        self.never = frozenset(never)
        """Codes of errors that are not repeated."""
        self.once = frozenset(once)
        """Codes of errors after which one more attempt is made."""


#: For one idempotent request: a server that restarts is back before the last attempt, three seconds
#: after the first. What the server itself has retried for seconds is not repeated.
TRANSPORT = RetryPolicy(5, 0.25, budget=10.0, never=("store_failed", "store_unreachable"))
#: For a request whose caller has a loop of its own.
IMMEDIATE = RetryPolicy(3, 0.0)
ONCE = RetryPolicy(1, 0.0)
#: For all that is left of a transfer; each attempt takes some seconds by itself.
RESUME = RetryPolicy(4, 2.0, once=("store_failed",))


class Retries:
    """The attempts at one thing under a policy."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._began = monotonic()
        self.reset()

    def reset(self) -> None:
        """Start again at the first attempt, because there was progress."""
        self.failed = 0
        self._met: set[str] = set()

    def next_pause(self, error: PaddleCloudError) -> float | None:
        """Seconds until the next attempt after this error; None: no further attempt."""
        policy, code = self._policy, error.code
        self.failed += 1
        if not is_transient(error) or code in policy.never or code in self._met:
            return None
        if self.failed >= policy.attempts:
            return None
        if code in policy.once:
            self._met.add(code)
        from random import uniform  # noqa: PLC0415 - 3 ms that only a failure needs

        pause = policy.first_pause * 2 ** (self.failed - 1) * uniform(0.8, 1.2)
        pause = max(pause, error.retry_after)
        return pause if monotonic() - self._began + pause <= policy.budget else None

    def wait(self, error: PaddleCloudError) -> None:
        """Sleep until the next attempt, or raise the error if there is none."""
        pause = self.next_pause(error)
        if pause is None:
            raise error
        sleep(pause)


def run(call: Callable[[], T], policy: RetryPolicy = TRANSPORT) -> T:
    """The result of `call`, in one of its attempts."""
    retries = Retries(policy)
    while True:
        try:
            return call()
        except PaddleCloudError as error:
            retries.wait(error)


def is_transient(error: PaddleCloudError) -> bool:
    """Whether it may be gone in a moment: a full disk, a full queue or a wrong certificate will
    not."""
    if error.code == BODY_CHANGED:
        return True
    return type(error) in (Retry, Unreachable) and not error.code.startswith(_LASTING)


#: The server refused a request because its body was changed on the way, and did nothing with it.
BODY_CHANGED = "auth_body_hash"
_LASTING = (
    "server_cert_",
    "server_no_tls",
    "server_plain",
    "server_wants_tls",
    "proxy_auth",
    "proxy_refused",
)
#: Connecting failed, so nothing of the request was sent.
NOT_SENT = ("server_unreachable", "proxy_unreachable", "proxy_failed")
