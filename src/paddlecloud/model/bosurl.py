"""The one reader of `bos_url`: which bucket, in which region, and which directory in it.

Asked by whoever submits, before anything is sent, and by the server before it opens the bucket, so
that both take the same. Imports nothing: the command line starts with it.
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
    host, _, directory = text.strip().removeprefix(_SCHEME).partition("/")
    labels, directory = host.split("."), directory.strip("/")
    if len(labels) != 4 or labels[2:] != ["bcebos", "com"]:
        return None
    if not all(_is_label(label) for label in labels[:2]) or not _is_directory(directory):
        return None
    return labels[0], labels[1], directory


def plain_bos_url(text: str) -> str | None:
    """The same address in the form in which it is kept; None when it is of another form."""
    found = split_bos_url(text)
    if found is None:
        return None
    bucket, region, directory = found
    return f"{bucket}.{region}.bcebos.com/{directory}".rstrip("/")


def _is_label(text: str) -> bool:
    """A name in DNS, in small letters."""
    plain = text.replace("-", "a")
    small = plain.isascii() and plain.isalnum() and plain == plain.lower()
    return small and len(text) <= _LABEL and text[0] != "-" and text[-1] != "-"


def _is_directory(text: str) -> bool:
    names = text.split("/")
    return not text or (
        text.isprintable()
        and "\\" not in text
        and names[0] not in _RESERVED
        and names[0][1:2] != ":"
        and len(names) <= _MOST_NAMES
        and len(text.encode()) <= MOST_BYTES
        and all(_is_name(name) for name in names)
    )


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..") and len(text.encode()) <= _NAME_BYTES
