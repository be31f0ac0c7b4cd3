"""Normalizes e-mail addresses and derives user ids from them.

Two spellings of one address must be one user, and two users must never become one: so an address
is normalized first, and lookup, mail and ids use only the normalized form, never what a user typed.
Whether mail arrives there is not checked here.
"""

from __future__ import annotations

import hashlib
from unicodedata import category, normalize

from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 254
MAX_LOCAL = 64
MAX_ID = 64
#: Ids that mean something else in a path or to a reader.
RESERVED = frozenset(
    ("admin", "anonymous", "local", "nobody", "paddlecloud", "public", "root", "server", "system")
)
_ATOM = frozenset("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+/=?^_`{|}~-")
_LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def canonical(address: str) -> str:
    """The one form of an address: NFC, without case, its domain in ASCII; Invalid if it is none."""
    text = normalize("NFC", normalize("NFC", address.strip()).casefold())
    local, at, domain = text.rpartition("@")
    ascii_domain = _ascii_domain(domain)
    found = f"{local}@{ascii_domain}"
    if not (at and _is_local(local) and ascii_domain) or len(found.encode()) > MAX_BYTES:
        shown = "".join(c if c.isprintable() else "?" for c in address[:80])
        raise Invalid("email_invalid", email=shown or '""')
    return found


def canonical_domain(domain: str) -> str:
    """A domain of an allow-list in the form that `canonical` gives; empty if it is none."""
    return _ascii_domain(normalize("NFC", domain.strip().lstrip("@")).casefold())


def domain_of(email: str) -> str:
    return email.rpartition("@")[2]


def id_for(email: str, is_free: Callable[[str], bool]) -> str:
    """A user id for a canonical address: its local part if that will do, else with a suffix.

    The suffix comes from the address, so that the same address gets the same id wherever it can.
    """
    local = email.rpartition("@")[0]
    safe = "".join(letter if letter in _ID else "-" for letter in local.partition("+")[0])
    safe = safe.strip("-._")[: MAX_ID // 2]
    if safe == local and is_user_id(safe) and safe not in RESERVED and is_free(safe):
        return safe
    digest = hashlib.sha256(email.encode()).hexdigest()
    for length in range(6, 33):
        name = f"{safe or 'user'}-{digest[:length]}"
        if is_free(name):
            return name
    raise Invalid("user_id_taken", user_id=f"{safe}-{digest[:32]}")


def is_user_id(text: str) -> bool:
    """Whether a text may name a user: it becomes a directory, a part of paths and of tables."""
    return 0 < len(text) <= MAX_ID and text[0].isalnum() and all(c in _ID for c in text)


def _ascii_domain(domain: str) -> str:
    """The domain as it is asked for on the wire; empty if it cannot be one."""
    try:
        name = domain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""
    valid = len(name) <= 253 and all(
        0 < len(label) <= 63 and label.strip("-") == label and _LABEL.issuperset(label)
        for label in name.split(".")
    )
    return name if valid else ""


def _is_local(local: str) -> bool:
    """A dot-atom; letters of any script, as RFC 6531 has it, and no quoted forms."""
    return len(local.encode()) <= MAX_LOCAL and all(
        atom and all(c in _ATOM or (not c.isascii() and category(c)[0] in "LMN") for c in atom)
        for atom in local.split(".")
    )
