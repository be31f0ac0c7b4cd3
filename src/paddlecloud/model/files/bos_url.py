"""Parses `bos_url`: bucket, region and directory.

Used by the client before anything is sent and by the server before it opens the bucket, so that
both accept the same and report the same errors. Imports nothing: submit_job loads this module.
"""

from __future__ import annotations

MOST_BYTES = 1024
"""Maximum length of an object key of S3 and BOS."""
_SCHEME = "https://"
_MOST_NAMES = 200
_NAME_BYTES = 255
_LABEL = 63
_RESERVED = (".tmp", ".times")
"""Directories that are reserved by the stores."""


def split_bos_url(text: str) -> tuple[str, str, str] | None:
    """Bucket, region and directory, which may be empty; None if it is malformed."""
    if fault_of(text) is not None:
        return None
    host, directory = _host_and_directory(text)
    bucket, region, *_ = host.split(".")
    return bucket, region, directory


def plain_bos_url(text: str) -> str | None:
    """The URL in its normalized form; None if it is malformed."""
    found = split_bos_url(text)
    if found is None:
        return None
    bucket, region, directory = found
    return f"{bucket}.{region}.bcebos.com/{directory}".rstrip("/")


def fault_of(text: str) -> tuple[str, dict[str, str | int]] | None:
    """What is wrong with it, as a message code and its values; None if it is valid."""
    host, directory = _host_and_directory(text)
    found = _fault_of_text(text.strip()) or _fault_of_host(host)
    return found or (_fault_of_directory(directory) if directory else None)


def _host_and_directory(text: str) -> tuple[str, str]:
    """Host and directory; a trailing slash is ignored."""
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
        return "bos_url_long", {"most": _NAME_BYTES, "limit": MOST_BYTES, "depth": _MOST_NAMES}
    return None


def _is_label(text: str) -> bool:
    """Whether it is a DNS label in lower case."""
    plain = text.replace("-", "a")
    small = plain.isascii() and plain.isalnum() and plain == plain.lower()
    return small and len(text) <= _LABEL and text[0] != "-" and text[-1] != "-"
