"""Marks of files in a bucket, which of them no job is given, and what a tag can tell."""

from __future__ import annotations

import pytest

from paddlecloud.model.private import is_ours, is_whole, mark, md5_of
from paddlecloud.model.snapshot import Entry, is_digest, snapshot_of

MD5 = "9e107d9d372bb6826bd81d3542a419d6"
JOB = "job-" + "a" * 32


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
