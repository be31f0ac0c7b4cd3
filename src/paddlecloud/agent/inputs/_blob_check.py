"""Verifies a downloaded blob by its sha256, or by the ETag that it has in a bucket.

The ETag of a file that was uploaded in parts does not contain the size of the parts, so the likely
sizes are tried.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from paddlecloud.model.files.etag import is_whole, joined_tag, md5_of, part_sizes


class WantedBlob(NamedTuple):
    """A blob to download."""

    sha256: str
    """Its digest; for a blob with a `tag`, the mark in its place (see `model.files.etag`)."""
    size: int
    url: str = ""
    """A presigned URL; empty: it can only be downloaded through the server."""
    tag: str = ""
    """The ETag of a file in the user's own bucket, whose sha256 is not known."""


class BlobCheck:
    """Compares the bytes of a download with the wanted blob."""

    def __init__(self, wanted: WantedBlob) -> None:
        self._wanted = wanted
        self._digest = hashlib.md5(usedforsecurity=False) if wanted.tag else hashlib.sha256()
        self._parts = [_PartsTag(size) for size in part_sizes(wanted.size, wanted.tag)]
        self.size = 0

    def update(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        for parts in self._parts:
            parts.update(chunk)
        self.size += len(chunk)

    @property
    def received(self) -> str:
        """The digest of what was received."""
        return self._digest.hexdigest()

    def is_good(self) -> bool:
        """Whether nothing contradicts that it is the wanted blob."""
        if self._wanted.tag:
            return is_whole(self.size, self._wanted.size, self.received, self._wanted.tag)
        return self.received == self._wanted.sha256

    def is_proven(self) -> bool:
        """Whether it is the wanted blob for certain. If it is only good, its ETag is of a kind that
        cannot be computed, or of an unlikely part size."""
        tag = self._wanted.tag.strip('"').lower()
        known = not tag or md5_of(tag) is not None
        return self.is_good() and (known or tag in [parts.tag for parts in self._parts])


class _PartsTag:
    """The ETag of a file that is uploaded in parts of one size."""

    def __init__(self, part_size: int) -> None:
        self._part_size = self._left = part_size
        self._part = hashlib.md5(usedforsecurity=False)
        self._md5s: list[str] = []

    def update(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            if not self._left:
                self._md5s.append(self._part.hexdigest())
                self._part, self._left = hashlib.md5(usedforsecurity=False), self._part_size
            self._part.update(rest[: self._left])
            taken = min(len(rest), self._left)
            rest, self._left = rest[taken:], self._left - taken

    @property
    def tag(self) -> str:
        return (joined_tag([*self._md5s, self._part.hexdigest()]) or "").strip('"')
