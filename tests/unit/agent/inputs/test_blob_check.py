"""A blob from a bucket is verified by its ETag, also if the file was uploaded in parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.inputs._blob_check import BlobCheck, WantedBlob
from paddlecloud.agent.inputs.cache import InputCache
from paddlecloud.agent.server_link.channel import Channel
from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.etag import joined_tag, part_size

MIB = 1024 * 1024
MARK = "a" * 64
CONTENT = bytes(range(256)) * 4096 * 13
"""13 MiB."""


def tag_of(content: bytes, each: int) -> str:
    parts = (content[at : at + each] for at in range(0, len(content), each))
    tag = joined_tag([hashlib.md5(part).hexdigest() for part in parts])
    assert tag is not None
    return tag


def checked(content: bytes, tag: str, size: int = len(CONTENT)) -> BlobCheck:
    check = BlobCheck(WantedBlob(MARK, size, "http://bucket/x", tag))
    for at in range(0, len(content), 700_001):
        check.update(content[at : at + 700_001])
    return check


def damaged(content: bytes) -> bytes:
    return content[:5_000_000] + bytes([content[5_000_000] ^ 1]) + content[5_000_001:]


OURS = part_size(len(CONTENT))


@pytest.mark.parametrize(
    "each", [OURS, 6 * MIB, 8 * MIB, len(CONTENT) // 2, -(-len(CONTENT) // 3), len(CONTENT)]
)
def test_a_file_that_came_in_parts_of_a_likely_size_is_proven_by_its_tag(each: int) -> None:
    tag = tag_of(CONTENT, each)
    assert checked(CONTENT, tag).is_proven()
    assert checked(CONTENT, tag.strip('"').upper()).is_proven()
    assert not checked(damaged(CONTENT), tag).is_proven()
    assert not checked(CONTENT[:-1], tag).is_good()


@pytest.mark.parametrize("tag", [tag_of(CONTENT, 5_500_000), '"other"', 'W/"1"'])
def test_one_of_unlikely_parts_or_another_tag_is_not_proven_and_not_refused(tag: str) -> None:
    check = checked(CONTENT, tag)
    assert (check.is_good(), check.is_proven()) == (True, False)


def test_an_md5_and_a_digest_prove_it_as_before() -> None:
    md5 = hashlib.md5(CONTENT).hexdigest()
    assert checked(CONTENT, f'"{md5}"').is_proven()
    assert not checked(damaged(CONTENT), f'"{md5}"').is_good()
    check = BlobCheck(WantedBlob(hashlib.sha256(b"x").hexdigest(), 1))
    check.update(b"x")
    assert check.is_proven()


class Bucket:
    """Returns these responses, one after the other and then the last one: to direct downloads, and
    through the server."""

    def __init__(self, tag: str, past: list[bytes], through: list[bytes]) -> None:
        self._tag, self._past, self._through = tag, past, through
        self.asked: list[str] = []

    def fetch(self, _address: str, take: Callable[[bytes], object], tag: str, start: int) -> bool:
        assert (tag, start) == (self._tag, 0)
        self.asked.append("past")
        take(self._past.pop(0) if len(self._past) > 1 else self._past[0])
        return True

    def drop_idle(self) -> None:
        pass

    def json(self, *_rest: object) -> dict[str, Any]:
        return {"contents": [[MARK, len(CONTENT), "http://bucket/x", self._tag]]}

    def call(self, *_rest: object, sink: Callable[[bytes], object], **_more: object) -> None:
        self.asked.append("through")
        sink(self._through.pop(0) if len(self._through) > 1 else self._through[0])


def fetched(folder: Path, bucket: Bucket) -> bytes:
    cache = InputCache(folder, limit=1 << 30)
    cache._downloads.direct = cast("Any", bucket)
    source = cache.source("r", None, cast("Channel", bucket), direct=True)
    with open(source(MARK, len(CONTENT)), "rb") as file:  # noqa: PTH123 - a descriptor
        return file.read()


BAD = damaged(CONTENT)
UNLIKELY = 5_500_000


@pytest.mark.parametrize(
    ("each", "past", "through", "asked"),
    [
        (OURS, [CONTENT], [], ["past"]),
        (OURS, [BAD], [CONTENT], ["past", "through"]),
        (UNLIKELY, [CONTENT], [CONTENT], ["past", "through"]),
        (UNLIKELY, [BAD], [CONTENT], ["past", "through", "through"]),
        (UNLIKELY, [CONTENT], [BAD, CONTENT, CONTENT], ["past", *["through"] * 3]),
    ],
    ids=["proven", "damaged", "not proven", "not proven and damaged", "damaged the other way"],
)
def test_what_is_not_proven_has_to_come_twice(
    tmp_path: Path, each: int, past: list[bytes], through: list[bytes], asked: list[str]
) -> None:
    bucket = Bucket(tag_of(CONTENT, each), [*past], [*through])
    assert fetched(tmp_path, bucket) == CONTENT
    assert bucket.asked == asked
    assert fetched(tmp_path, bucket) == CONTENT
    assert bucket.asked == asked, "it is in the cache"


def test_what_is_always_damaged_reaches_no_job(tmp_path: Path) -> None:
    other = CONTENT[::-1]
    bucket = Bucket(tag_of(CONTENT, OURS), [BAD], [other, BAD, other])
    with pytest.raises(Invalid) as refused:
        fetched(tmp_path, bucket)
    assert refused.value.code == "agent_blob_damaged"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
