"""Tells an object store from whatever else may answer HTTP at its address.

A sign-in page of a network, a proxy or a web server says 200 to anything, keeps nothing, and would
pass for an empty bucket that took every byte. An object store names what it holds by a tag, lists
in documents of known names, and refuses in its own form. Judges answers, asks for none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from paddlecloud.model.errors import Unreachable

Headers = Mapping[str, str]

_WHOLE = (200, 206)
_OURS = ("x-amz-", "x-bce-")
_ELSEWHERE = range(300, 400)
_REFUSALS = (400, 401, 403, 404, 405, 501)
_UNWRITABLE = re.compile(
    rb"[\0-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]"
    rb"|&#(?:x0*(?:[0-8bcef]|1[0-9a-f]|fff[ef])|0*(?:[0-8]|1[124-9]|2[0-9]|3[01]));",
    re.IGNORECASE,
)
"""Characters that XML 1.0 does not have, as they are or by their number."""
_INSTEAD = "\ufffd".encode()


def lacks_tag(method: str, key: str, query: object, status: int, headers: Headers) -> bool:
    """Whether an answer of success is without what an object that is kept always has."""
    about_object = key and (method in ("PUT", "HEAD") or (method == "GET" and not query))
    return bool(about_object) and status in _WHOLE and not headers.get("etag")


def is_no_refusal(method: str, status: int, code: str, headers: Headers) -> bool:
    """Whether no object store would refuse like this; `code` is the one of its error, if any."""
    if code or any(name.startswith(_OURS) for name in headers):
        return False
    if status in _REFUSALS and headers.get("content-type", "").startswith("text/html"):
        return True
    # An answer to HEAD has no body, and nobody minds what is said to a DELETE of nothing.
    spoken = status == 404 and method not in ("HEAD", "DELETE")
    return spoken or status in _ELSEWHERE


def document(data: bytes, name: str) -> ElementTree.Element | None:
    """The document of this name, its names without their space; None when it is another."""
    top = parsed(data)
    return top if top is not None and top.tag == name else None


def parsed(data: bytes) -> ElementTree.Element | None:
    """A document of any name; None when it is no XML. The name of a file may hold what XML cannot:
    a server that writes it all the same is understood but for that."""
    try:
        top = ElementTree.fromstring(data.strip())
    except ElementTree.ParseError:
        try:
            top = ElementTree.fromstring(_UNWRITABLE.sub(_INSTEAD, data.strip()))
        except ElementTree.ParseError:
            return None
    for element in top.iter():
        element.tag = element.tag.rpartition("}")[2]
    return top


def stranger(place: str, status: int, headers: Headers, data: bytes = b"") -> Unreachable:
    """What to raise, with enough of the answer to know who gave it."""
    kind, where = headers.get("content-type", ""), headers.get("location", "")
    begin = data[:60].decode("utf-8", "replace") if kind.startswith("text/") or not kind else ""
    words = [str(status), kind, where and f"-> {where}", begin]
    came = "".join(letter if letter.isprintable() else " " for letter in " ".join(words))
    return Unreachable("store_stranger", place=place, came=" ".join(came.split())[:200])
