"""Regular expressions over logs, with RE2.

RE2 takes time linear in the log, whatever the pattern, needs a few megabytes for it, and releases
the interpreter lock: a pattern of a user neither hangs the server nor slows other requests. It has
no look-around and no backreferences; such patterns are refused.

A pattern in ASCII is matched against bytes, so logs in any encoding can be searched; one with other
characters against UTF-8. A line ends with a newline, and no match extends over one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from paddlecloud.model.errors import Invalid
from paddlecloud.model.logs.merge import Source

MAX_PATTERN = 1000
MAX_LINE = 1024 * 1024
"""Bytes of a line; a longer one is searched in parts."""
_WHOLE_TEXT = {r"\A": "^", r"\z": "$", r"\Z": "$"}
"""Each line is a text of its own, so these anchors mean the same."""


class Pattern:
    def __init__(self, text: str) -> None:
        """Invalid("grep_invalid") if RE2 cannot compile it, with the reason."""
        import re2  # noqa: PLC0415 - 3 ms and 3 MB of every server, for those that search

        if len(text) > MAX_PATTERN:
            raise Invalid("grep_too_long", limit=MAX_PATTERN)
        options = re2.Options()
        options.never_nl = True
        options.never_capture = True
        options.log_errors = False
        if text.isascii():
            options.encoding = re2.Options.Encoding.LATIN1
        multiline = re.sub(r"(?s)\\.", lambda escape: _WHOLE_TEXT.get(escape[0], escape[0]), text)
        try:
            self._regex: Any = re2.compile(
                b"(?m)" + multiline.encode("utf-8", "surrogateescape"), options
            )
        except re2.error as error:
            detail = error.args[0].decode("utf-8", "replace")[:100]
            raise Invalid("grep_invalid", pattern=text[:100], detail=detail) from None
        finally:
            re2.purge()  # its cache would keep 128 patterns of up to 8 MiB

    def spans(self, block: bytes, end: int) -> Iterator[tuple[int, int]]:
        """Start and end, with the newline, of each matching line in `block[:end]`."""
        last = end - 1 if block[end - 1 : end] == b"\n" else end
        position = 0
        while position < end and (match := self._regex.search(block, position, last)):
            start = block.rfind(b"\n", position, match.start()) + 1 or position
            position = block.find(b"\n", match.start(), end) + 1 or end
            yield start, position


class SearchedSource(Source):
    """A log of which only the matching lines are read."""

    line_ends = (b"\n",)

    def __init__(self, pattern: Pattern, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pattern = pattern
        self._unfinished = -1
        """Where the part of a long line ended that was returned last."""

    def chunks(self, until: int, size: int) -> Iterator[bytes]:
        """The matching lines from `offset` up to there, for each block of about `size` bytes; an
        empty one for a block without a match."""
        limit = size
        while self.offset < until:
            block = self._read(self.offset, min(limit, until - self.offset))
            if not block:
                return
            end = len(block)
            if self.offset + end < until:
                end = block.rfind(b"\n") + 1
                if not end and limit < MAX_LINE:
                    limit = min(2 * limit, MAX_LINE)
                    continue
            limit = size
            matching = self._matching(block, end or len(block))
            self.offset += end or len(block)
            del block  # a suspended search keeps no block
            yield matching
        if self._unfinished >= 0:
            self._unfinished = -1
            yield b"\n"

    def _matching(self, block: bytes, end: int) -> bytes:
        found: list[bytes] = []
        for start, stop in self._pattern.spans(block, end):
            if self._unfinished not in (-1, self.offset + start):
                found.append(b"\n")
            found.append(block[start:stop])
            ended = block[stop - 1 : stop] == b"\n"
            self._unfinished = -1 if ended else self.offset + stop
        return b"".join(found)
