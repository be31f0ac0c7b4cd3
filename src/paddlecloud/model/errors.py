"""The error tree.

    PaddleCloudError
    ├── Invalid            the input is wrong                                   400, exit 2
    │   └── ConfigError    a configuration file or setting is wrong             400, exit 2
    ├── Unauthenticated    no valid signature                                   401, exit 1
    ├── Forbidden          known, but without the right to do this              403, exit 1
    ├── NotFound           it does not exist, or it is not yours                404, exit 1
    ├── Conflict           it clashes with what is already there                409, exit 1
    │   ├── SnapshotMissing    upload the files first, then ask again
    │   ├── StaleVersion       the row was changed by another request (never leaves the server)
    │   ├── StaleFence         a message of an attempt that is over
    │   └── IllegalTransition  the table of states has no such arrow
    ├── TooLarge           a body above the limit                               413, exit 1
    ├── Refused            understood, but this server cannot do it             422, exit 1
    ├── Internal           a bug                                                500, exit 1
    └── Retry              temporary: the only class worth retrying             503, exit 1
        ├── TooMany        above a rate or a count                              429, exit 1
        ├── StorageFull    no space left on the server                          507, exit 1
        └── Unreachable    the server does not respond

An error is a class (what to do about it), a stable code (which message) and the values in that
message; the messages are in `paddlecloud.messages`, in two languages. The client raises the class
that the server raised. No dataclasses or typing here: every command loads this module.
"""

from __future__ import annotations

from paddlecloud.messages import Words, both, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class PaddleCloudError(Exception):
    """A message for people, with a stable code for programs."""

    status = 500
    exit_code = 1
    said: str | None = None
    """The message as a server sent it: a newer server may have codes that this client does not
    know. None for an error of this program."""
    retry_after = 0.0
    """Seconds that the server asks to wait before the request is repeated."""

    def __init__(self, code: str, /, **params: object) -> None:
        super().__init__(code)
        self.code = code
        self.params = params

    def text(self, lang: str) -> str:
        """The sentence in `lang` ("zh" or "en")."""
        return self.said or render(self.code, self.params, lang)

    def words(self) -> Words:
        """The sentence as a value within another one."""
        return both(self.text("en"), self.text("zh"))

    def __str__(self) -> str:
        return self.text("en")

    def to_wire(self, lang: str) -> dict[str, object]:
        """The JSON object that carries this error over HTTP."""
        return {
            "kind": type(self).__name__,
            "code": self.code,
            "message": self.text(lang),
            "params": self.params,
        }


class Invalid(PaddleCloudError):
    status = 400
    exit_code = 2


class ConfigError(Invalid):
    pass


class Unauthenticated(PaddleCloudError):
    status = 401


class Forbidden(PaddleCloudError):
    status = 403


class NotFound(PaddleCloudError):
    status = 404


class Conflict(PaddleCloudError):
    status = 409


class SnapshotMissing(Conflict):
    pass


class StaleVersion(Conflict):
    pass


class StaleFence(Conflict):
    pass


class IllegalTransition(Conflict):
    pass


class TooLarge(PaddleCloudError):
    status = 413


class Refused(PaddleCloudError):
    status = 422


class Internal(PaddleCloudError):
    status = 500


class Retry(PaddleCloudError):
    status = 503


class TooMany(Retry):
    status = 429


class StorageFull(Retry):
    status = 507


class Unreachable(Retry):
    status = 503


def from_wire(status: int, error: Mapping[str, object]) -> PaddleCloudError:
    """The error a server sent, as the class it raised there."""
    params = error.get("params")
    known = params if isinstance(params, dict) else {}
    kind = _KINDS.get(str(error.get("kind")))
    if kind is None:
        branches = (each for each in _KINDS.values() if each is not PaddleCloudError)
        same = (each for each in branches if each.status == status)
        kind = next(same, Internal if status >= 500 else Invalid)
    raised = kind(str(error.get("code") or "unknown_answer"), **known)
    raised.said = str(error.get("message") or "")
    return raised


def _tree(kind: type[PaddleCloudError]) -> dict[str, type[PaddleCloudError]]:
    found = {kind.__name__: kind}
    for child in kind.__subclasses__():
        found.update(_tree(child))
    return found


_KINDS = _tree(PaddleCloudError)
