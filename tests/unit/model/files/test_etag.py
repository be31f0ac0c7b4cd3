"""Marks of files in a bucket, which of them no job is given, and what a tag can tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.files.etag import (
    LEAST_PART,
    MOST_PARTS,
    at_once,
    count_in,
    cuts,
    is_ours,
    is_whole,
    mark,
    md5_of,
    part_size,
    part_sizes,
    said_by,
)
from paddlecloud.model.files.snapshot import Entry, is_digest, snapshot_of

MD5 = "9e107d9d372bb6826bd81d3542a419d6"
JOB = "job-" + "a" * 32


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (
            500,
            b'<?xml version="1.0"?>\n<Error><Code>InternalError</Code>'
            b"<Message>We had a\n problem</Message><RequestId>18E8",
            "500 InternalError We had a problem",
        ),
        (403, b"<Error><Code>AccessDenied</Code></Error>", "403 AccessDenied"),
        (200, b"<html><title>Sign in</title><body", "200 Sign in"),
        (502, b"", "502"),
        (500, b"\xff" * 999, "500 " + "\ufffd" * 196),
    ],
)
def test_what_a_bucket_answered_in_a_few_words(status: int, body: bytes, want: str) -> None:
    assert said_by(status, body) == want


def test_a_mark_stands_for_one_content_at_one_place() -> None:
    one = mark("bucket.bj", "dir/x", 3, f'"{MD5}"')
    assert is_digest(one)
    assert one == mark("bucket.bj", "dir/x", 3, f'"{MD5}"')
    others = {
        mark("other.bj", "dir/x", 3, f'"{MD5}"'),
        mark("bucket.bj", "dir/y", 3, f'"{MD5}"'),
        mark("bucket.bj", "dir/x", 4, f'"{MD5}"'),
        mark("bucket.bj", "dir/x", 3, '"other"'),
        mark("bucket.bj", "dir", 3, '/x"'),
    }
    assert len(others) == 5
    assert one not in others
    assert snapshot_of([Entry(path="x", size=3, sha256=one)]).digests == {one: 3}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (f"output/{JOB}/rank-0/model", True),
        (f"output/{JOB}/log/trainer-0.log", True),
        (f"output/{JOB}", False),
        ("output/model", False),
        ("output/job-of-mine/model", False),
        (f"data/output/{JOB}/x", False),
    ],
)
def test_what_jobs_left_there_is_no_file_of_the_next(path: str, want: bool) -> None:
    assert is_ours(path) is want


@pytest.mark.parametrize(
    ("tag", "want"),
    [
        (f'"{MD5}"', MD5),
        (MD5.upper(), MD5),
        (f'"{MD5}-3"', None),
        ("", None),
        ('W/"1"', None),
    ],
)
def test_only_a_tag_of_the_right_form_is_an_md5(tag: str, want: str | None) -> None:
    assert md5_of(tag) == want


def test_what_came_is_measured_by_size_and_md5() -> None:
    assert is_whole(43, 43, MD5, f'"{MD5}"')
    assert not is_whole(42, 43, MD5, f'"{MD5}"')
    assert not is_whole(43, 43, "0" * 32, f'"{MD5}"')
    assert is_whole(43, 43, "0" * 32, f'"{MD5}-2"')
    assert not is_whole(42, 43, "0" * 32, f'"{MD5}-2"')


@given(st.integers(LEAST_PART + 1, 2**46))
def test_little_of_a_file_is_on_its_way_at_once(size: int) -> None:
    each = part_size(size)
    assert -(-size // each) <= MOST_PARTS
    assert each in cuts(size)
    together = at_once(size, each)
    assert 1 <= together <= 4
    small = size < 20 * LEAST_PART
    huge = each > 16 * 1024 * 1024
    assert together * each <= size / 20 or (small and (together, each) == (1, LEAST_PART)) or huge


@given(st.lists(st.integers(0, 2**32), min_size=1))
def test_little_of_many_files_is_on_its_way_at_once(sizes: list[int]) -> None:
    total, most = sum(sizes), part_size(sum(sizes))
    largest = max((size for size in sizes if size <= most), default=0)
    together = at_once(total, largest)
    assert together == 1 or together * largest <= total / 20


@pytest.mark.parametrize(
    ("size", "want"),
    [
        (6_000_000, (5 << 20, 16 << 20)),
        (400 << 20, (5 << 20, 16 << 20)),
        (640 << 20, (8 << 20, 16 << 20)),
        (1280 << 20, (16 << 20,)),
        (2**40, (-(-(2**40) // 10_000),)),
    ],
)
def test_the_ways_in_which_a_file_may_be_cut(size: int, want: tuple[int, ...]) -> None:
    assert cuts(size) == want


def test_the_parts_that_a_tag_tells() -> None:
    assert count_in(f'"{MD5}-12"') == 12
    assert count_in(f"{MD5}-1") == 1
    assert [count_in(tag) for tag in (f'"{MD5}"', "", "other", f'"{MD5}-"')] == [0, 0, 0, 0]


@given(st.integers(1, 2**44), st.sampled_from([5, 8, 15, 16, 32, 64, 128, 512]))
def test_the_parts_of_the_usual_tools_are_among_the_likely_ones(size: int, mib: int) -> None:
    count = -(-size // (mib << 20))
    if count > 10_000:
        return
    likely = part_sizes(size, f'"{MD5}-{count}"')
    assert count == 1 or (mib << 20) in likely
    assert likely
    assert {-(-size // each) for each in likely} == {count}
    assert len(likely) <= 9


@given(st.integers(1, 2**44))
def test_and_so_are_ours(size: int) -> None:
    for each in cuts(size):
        assert -(-size // each) == 1 or each in part_sizes(size, f"{MD5}-{-(-size // each)}")


def test_other_tags_have_none() -> None:
    assert (
        part_sizes(10, f'"{MD5}"') == part_sizes(0, f'"{MD5}-1"') == part_sizes(10, "other") == ()
    )
