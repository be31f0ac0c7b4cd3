"""The one reader of `bos_url`: which bucket, in which region, and which directory in it.

Asked by whoever submits, before anything is sent, and by the server before it opens the bucket, so
that both take the same, and say the same of what they do not take. Imports nothing: the command
line starts with it.
"""

from __future__ import annotations

MOST_BYTES = 1024
"""S3 and BOS allow no longer name."""
_SCHEME = "https://"
_MOST_NAMES = 200
_NAME_BYTES = 255
_LABEL = 63
_RESERVED = (".tmp", ".times")
"""Directories that a store keeps for itself."""


def split_bos_url(text: str) -> tuple[str, str, str] | None:
    """Bucket, region and directory, which may be empty; None when it is of another form."""
    if fault_of(text) is not None:
        return None
    host, directory = _halves(text)
    bucket, region, *_ = host.split(".")
    return bucket, region, directory


def plain_bos_url(text: str) -> str | None:
    """The same address in the form in which it is kept; None when it is of another form."""
    found = split_bos_url(text)
    if found is None:
        return None
    bucket, region, directory = found
    return f"{bucket}.{region}.bcebos.com/{directory}".rstrip("/")


def fault_of(text: str) -> tuple[str, dict[str, str | int]] | None:
    """What keeps it from being one, as a sentence and its values; None: nothing."""
    host, directory = _halves(text)
    found = _fault_of_text(text.strip()) or _fault_of_host(host)
    return found or (_fault_of_directory(directory) if directory else None)


def _halves(text: str) -> tuple[str, str]:
    """Host and directory; a slash at the end means nothing, as everywhere."""
    host, _, directory = text.strip().removeprefix(_SCHEME).partition("/")
    return host, directory.removesuffix("/")


def _fault_of_text(text: str) -> tuple[str, dict[str, str | int]] | None:
    if not text.isprintable():
        return "bos_url_control", {}
    scheme, found, _ = text.partition("://")
    if found and scheme + found != _SCHEME and "/" not in scheme:
        return "bos_url_scheme", {"scheme": scheme + found}
    for sign in ("?", "#"):
        if sign in text:
            return "bos_url_sign", {"sign": sign}
    return None


def _fault_of_host(host: str) -> tuple[str, dict[str, str | int]] | None:
    name, colon, port = host.partition(":")
    labels = name.split(".")
    if len(labels) != 4 or labels[2:] != ["bcebos", "com"]:
        return "bos_url_host", {"host": host}
    if colon:
        return "bos_url_port", {"port": colon + port}
    for label in labels[:2]:
        if not _is_label(label):
            return "bos_url_label", {"label": label, "most": _LABEL}
    return None


def _fault_of_directory(text: str) -> tuple[str, dict[str, str | int]] | None:
    names = text.split("/")
    if "" in names:
        return "bos_url_slashes", {}
    for name in names:
        if name in (".", "..") or "\\" in name:
            return "bos_url_name", {"name": name}
    if names[0] in _RESERVED or names[0][1:2] == ":":
        return "bos_url_name", {"name": names[0]}
    longest = max(len(name.encode()) for name in names)
    if longest > _NAME_BYTES or len(text.encode()) > MOST_BYTES or len(names) > _MOST_NAMES:
        told: dict[str, str | int] = {"most": _NAME_BYTES, "limit": MOST_BYTES}
        return "bos_url_long", {**told, "depth": _MOST_NAMES}
    return None


def _is_label(text: str) -> bool:
    """A name in DNS, in small letters."""
    plain = text.replace("-", "a")
    small = plain.isascii() and plain.isalnum() and plain == plain.lower()
    return small and len(text) <= _LABEL and text[0] != "-" and text[-1] != "-"
