"""Signatures, against the worked examples of Amazon's own documentation."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from paddlecloud.stores.s3.sigv4 import EMPTY, Keys, Signer, query_text

WHEN = datetime(2013, 5, 24, tzinfo=UTC)
KEYS = Keys(
    access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)
SIGNER = Signer(keys=KEYS, region="us-east-1", host="examplebucket.s3.amazonaws.com")


def signature(headers: dict[str, str]) -> str:
    found = re.search("Signature=([0-9a-f]{64})$", headers["authorization"])
    assert found
    return found[1]


def test_get_with_a_range() -> None:
    headers = SIGNER.headers("GET", "/test.txt", (), EMPTY, WHEN, {"range": "bytes=0-9"})
    want = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert signature(headers) == want
    assert (
        "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
        in (headers["authorization"])
    )


def test_put_with_a_body() -> None:
    digest = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
    more = {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}
    headers = SIGNER.headers("PUT", "/test%24file.text", (), digest, WHEN, more)
    want = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    assert signature(headers) == want


def test_a_query_without_a_value_and_a_listing() -> None:
    headers = SIGNER.headers("GET", "/", (("lifecycle", ""),), EMPTY, WHEN, {})
    want = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    assert signature(headers) == want
    query = (("prefix", "J"), ("max-keys", "2"))
    headers = SIGNER.headers("GET", "/", query, EMPTY, WHEN, {})
    want = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    assert signature(headers) == want


def test_an_address_that_is_good_for_a_day() -> None:
    query = SIGNER.query("GET", "/test.txt", (), timedelta(days=1), WHEN)
    want = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    assert query.endswith(f"&X-Amz-Signature={want}")
    assert "X-Amz-Expires=86400&" in query


def test_an_address_is_good_for_a_week_at_most() -> None:
    assert "X-Amz-Expires=604800&" in SIGNER.query("GET", "/x", (), timedelta(days=90), WHEN)


def test_temporary_keys_send_their_token() -> None:
    keys = Keys(access_key="ak", secret_key="sk", session_token="to/ken")
    signer = Signer(keys=keys, region="bj", host="s3.bj.bcebos.com")
    headers = signer.headers("GET", "/x", (), EMPTY, WHEN, {})
    assert headers["x-amz-security-token"] == "to/ken"
    assert "x-amz-security-token" in headers["authorization"]
    query = signer.query("GET", "/x", (), timedelta(hours=1), WHEN)
    assert "X-Amz-Security-Token=to%2Fken" in query


def test_no_key_is_shown_by_mistake() -> None:
    keys = Keys(access_key="ak", secret_key="very secret", session_token="token of mine")
    assert "secret'" not in repr(keys)
    assert "very" not in repr(keys)
    assert "mine" not in repr(keys)


def test_a_query_is_sorted_and_quoted() -> None:
    assert query_text([("b", "1 2/+"), ("a", "é")]) == "a=%C3%A9&b=1%202%2F%2B"
