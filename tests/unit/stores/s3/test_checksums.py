"""What a request says about its bytes, by what guards them and by what the server has shown."""

from __future__ import annotations

import hashlib

from paddlecloud.stores.s3._checksums import ChecksumHeaders

BODY = b"bytes"
DIGEST = hashlib.sha256(BODY).hexdigest()


def said(guard: ChecksumHeaders, *, part: bool = True, body: bytes = BODY) -> set[str]:
    return set(guard.headers(body, DIGEST, part=part))


def test_tls_needs_nothing_more() -> None:
    assert said(ChecksumHeaders("s3.example.org", tls=True)) == set()


def test_no_body_needs_no_digest() -> None:
    assert said(ChecksumHeaders("s3.example.org", tls=False), body=b"") == set()


def test_a_whole_file_has_its_md5_always() -> None:
    guard = ChecksumHeaders("s3.example.org", tls=False)
    first = guard.headers(BODY, DIGEST, part=True)
    assert guard.is_checked(first, first)
    assert said(guard, part=False) == {"content-md5"}


def test_baidu_is_never_asked_for_a_checksum() -> None:
    assert said(ChecksumHeaders("s3.bj.bcebos.com", tls=False)) == {"content-md5"}
    assert said(ChecksumHeaders("bucket.s3.bj.bcebos.com", tls=False)) == {"content-md5"}


def test_an_answer_with_another_checksum_is_none() -> None:
    guard = ChecksumHeaders("s3.example.org", tls=False)
    first = guard.headers(BODY, DIGEST, part=True)
    assert guard.is_checked(first, {"x-amz-checksum-sha256": "other"})  # MD5 has been compared
    assert said(guard) == {"content-md5"}


def test_who_did_not_compare_once_is_not_trusted_again() -> None:
    guard = ChecksumHeaders("s3.example.org", tls=False)
    first = guard.headers(BODY, DIGEST, part=True)
    assert guard.is_checked(first, first)
    later = guard.headers(BODY, DIGEST, part=True)
    assert not guard.is_checked(later, {})
    assert guard.is_checked(later, later)  # the answer to another thread, which had asked before
    assert said(guard) == {"content-md5"}


def test_a_refusal_for_the_form_changes_the_form() -> None:
    guard = ChecksumHeaders("s3.example.org", tls=False)
    first = guard.headers(BODY, DIGEST, part=True)
    assert not guard.is_at_fault(first, 403)
    assert guard.is_at_fault(first, 400)
    assert not guard.is_at_fault(guard.headers(BODY, DIGEST, part=True), 400)
