"""bce-auth-v1 against published vectors, the vendor's own signer, and every way to tamper."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from paddlecloud.model.errors import Unauthenticated
from paddlecloud.model.protocol import bce_auth
from paddlecloud.model.protocol.bce_auth import (
    MAX_AHEAD,
    MAX_EXPIRE,
    Authorization,
    check_body,
    check_nonce,
    format_time,
    header_map,
    parse,
    quote,
    sign,
    verify,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the vendor's files carry invalid escape sequences
    from baidubce.auth import bce_v1_signer as vendor
    from baidubce.auth.bce_credentials import BceCredentials

AK = "EXAMPLEAK0001"
SK = "EXAMPLESK0000000000000000000001"
WHEN = 1767323045  # 2026-01-02T03:04:05Z
PREFIX = f"bce-auth-v1/{AK}/2026-01-02T03:04:05Z/1800"
PATH = "/v2/instanceBySpec"
QUERY = "clientToken=job-1%2Fa%200&stop"
HEADERS = {
    "host": "bcc.example.test:8443",
    "content-length": "17",
    "content-type": "application/json",
    "x-bce-date": "2026-01-02T03:04:05Z",
}
DEFAULT_SET = "8a5f07daab83fa1f87d69c8929e2ac637bcd1d6c854c1d41a32fcad109abbe0d"
HOST_AND_BCE = "7e9003b5d88a04d38f3f245633e0fdcbf2cffbcfc54bfb351ac417197cc47d49"
HOST_ALONE = "9a85cf4edf66e47115d704c8ccfdd41c9e76eb56b2462efd74956733d21b8f06"


@pytest.mark.parametrize(
    ("listed", "signature"),
    [
        pytest.param("", DEFAULT_SET, id="no list means the default set"),
        pytest.param("host", HOST_AND_BCE, id="the vendor's SDK signs x-bce-* unasked"),
        pytest.param("host", HOST_ALONE, id="the strict reading signs the listed names"),
    ],
)
def test_published_vectors_are_accepted(listed: str, signature: str) -> None:
    auth = parse(f"{PREFIX}/{listed}/{signature}")
    verify(auth, SK, "POST", PATH, QUERY, HEADERS, WHEN)
    assert (auth.ak, auth.timestamp, auth.expires_at) == (AK, WHEN, WHEN + 1800)


@pytest.mark.parametrize(
    ("listed", "signature", "covered"),
    [("", DEFAULT_SET, True), ("host", HOST_AND_BCE, True), ("host", HOST_ALONE, False)],
)
def test_a_required_header_must_be_in_the_reading_that_matched(
    listed: str, signature: str, covered: bool
) -> None:
    auth = parse(f"{PREFIX}/{listed}/{signature}")
    code = refusal(auth, required=("host", "x-bce-date"))
    assert code == (None if covered else "auth_header_unsigned")


def test_a_required_header_that_is_absent_is_not_covered_by_being_listed() -> None:
    value = sign(AK, SK, "GET", "/", "", {"host": "h"}, WHEN)
    listed = value.replace("/host/", "/host;x-bce-nonce/")
    code = refusal(parse(listed), "GET", "/", "", {"host": "h"}, required=("x-bce-nonce",))
    assert code == "auth_header_unsigned"


def test_signing_names_the_headers_it_covers() -> None:
    value = sign(AK, SK, "post", PATH, QUERY, {**HEADERS, "Accept": "*/*", "x-bce-e": ""}, WHEN)
    assert value.split("/")[4] == "content-type;host;x-bce-date"
    assert value.startswith(PREFIX)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TOKEN = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=8)
HEADER_VALUE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20
)
HEADER_SETS = st.dictionaries(
    st.one_of(
        st.sampled_from(["host", "content-type", "content-md5", "content-length", "accept"]),
        TOKEN.map(lambda token: f"x-bce-{token}"),
    ),
    HEADER_VALUE,
    max_size=6,
)
WIRE_PATH = st.text("abcXYZ019/%-._~", max_size=20).map(lambda text: "/" + text)
PARAMS = st.dictionaries(TEXT, st.one_of(st.none(), TEXT), max_size=4)


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD"]),
    WIRE_PATH,
    PARAMS,
    HEADER_SETS,
    st.integers(1, 4_000_000_000),
    st.integers(1, MAX_EXPIRE),
)
def test_the_vendors_signer_agrees(
    method: str,
    path: str,
    params: dict[str, str | None],
    headers: dict[str, str],
    when: int,
    expire: int,
) -> None:
    params.pop("authorization", None)  # the vendor means to leave it out, but compares a method
    ours = sign(AK, SK, method, path, wire(params), headers, when, expire)
    names = ours.split("/")[4]
    for listed in (names.split(";") if names else [], []):
        theirs = vendor_sign(method, path, params, headers, when, expire, listed)
        auth = parse(theirs)
        verify(auth, SK, method, path, wire(params), headers, when)
        assert listed == [] or theirs == ours


@given(PARAMS, st.integers(0, 10), st.sampled_from(list("abc/&=%+~ 0")))
def test_a_query_that_reads_differently_is_refused(
    params: dict[str, str | None], where: int, letter: str
) -> None:
    query = wire(params)
    other = query[:where] + letter + query[where:]
    same = sorted(parse_qsl(query, keep_blank_values=True)) == sorted(
        parse_qsl(other, keep_blank_values=True)
    )
    auth = parse(sign(AK, SK, "GET", "/", query, HEADERS, WHEN))
    assert refusal(auth, "GET", "/", other) in (
        (None, "auth_signature") if same else ("auth_signature",)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"method": "PUT"},
        {"path": "/v2/instancebyspec"},
        {"path": "/v2/instance%42ySpec"},
        {"query": QUERY + "&x=1"},
        {"query": "stop"},
        {"headers": {**HEADERS, "host": "other.example.test"}},
        {"headers": {**HEADERS, "x-bce-date": "2026-01-02T03:04:06Z"}},
        {"headers": {**HEADERS, "x-bce-new": "1"}},
        {"headers": {"host": HEADERS["host"]}},
        {"sk": SK + "x"},
    ],
    ids=str,
)
def test_any_change_breaks_a_default_signature(change: dict[str, object]) -> None:
    auth = parse(f"{PREFIX}//{DEFAULT_SET}")
    assert refusal(auth) is None
    assert refusal(auth, **change) == "auth_signature"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "want"),
    [
        (WHEN, None),
        (WHEN + 1800, None),
        (WHEN + 1801, "auth_expired"),
        (WHEN - MAX_AHEAD, None),
        (WHEN - MAX_AHEAD - 1, "auth_future"),
    ],
)
def test_age(now: int, want: str | None) -> None:
    assert refusal(parse(f"{PREFIX}//{DEFAULT_SET}"), now=now) == want


@pytest.mark.parametrize(("off", "word"), [(3600, "later"), (-3600, "earlier")])
def test_a_clock_that_is_off_is_told_by_how_much(off: int, word: str) -> None:
    auth = parse(f"{PREFIX}//{DEFAULT_SET}")
    with pytest.raises(Unauthenticated) as caught:
        verify(auth, SK, "POST", PATH, QUERY, HEADERS, WHEN + off, ())
    assert f"{format_time(WHEN + off)}, 3600 s {word}" in caught.value.text("en")
    assert "相差 3600 秒" in caught.value.text("zh")


def test_checks_come_in_the_documented_order() -> None:
    wrong = parse(f"{PREFIX}//{'0' * 64}")
    late = WHEN + 10_000
    assert refusal(wrong, sk=None, now=late) == "auth_unknown_key"
    assert refusal(wrong, now=late) == "auth_expired"
    assert refusal(wrong, required=("x-bce-nonce",)) == "auth_signature"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "bce-auth-v2" + f"{PREFIX}//{DEFAULT_SET}"[11:],
        f"{PREFIX}/{DEFAULT_SET}",
        f"{PREFIX}///{DEFAULT_SET}",
        f"{PREFIX}//{DEFAULT_SET.upper()}",
        f"{PREFIX}//{DEFAULT_SET[:-1]}",
        f"{PREFIX}/{'h' * 5000}/{DEFAULT_SET}",
        f"bce-auth-v1//2026-01-02T03:04:05Z/1800//{DEFAULT_SET}",
        f"bce-auth-v1/é/2026-01-02T03:04:05Z/1800//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02T03:04:05Z/0//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02T03:04:05Z/-5//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02T03:04:05Z/{MAX_EXPIRE + 1}//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02T03:04:05Z/٣//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-02-30T03:04:05Z/1800//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-13-01T03:04:05Z/1800//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02T24:04:05Z/1800//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02 03:04:05Z/1800//{DEFAULT_SET}",
        f"bce-auth-v1/{AK}/2026-01-02T03:04:05+/1800//{DEFAULT_SET}",
    ],
)
def test_malformed_values_are_refused(text: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        parse(text)
    assert caught.value.code == "auth_malformed"


@given(st.text(max_size=40) | st.text("/bce-auth-v1", max_size=40))
def test_parsing_raises_nothing_else(text: str) -> None:
    with pytest.raises(Unauthenticated):
        parse(text)


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_signature_is_said_so(nothing: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        parse(nothing)
    assert caught.value.code == "auth_missing"


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))  # noqa: DTZ001 - made aware below
def test_timestamps_of_every_year_are_read_back(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    text = f"{moment:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")
    want = int(moment.timestamp())
    assert format_time(want) == text
    assert parse(f"bce-auth-v1/a/{text}/1//{'0' * 64}").timestamp == want


def test_a_signed_header_that_comes_twice_is_refused() -> None:
    assert header_map([(b"Via", b"a"), (b"via", b"b"), (b"Host", b"h")]) == {
        "via": "a, b",
        "host": "h",
    }
    for name in (b"host", b"X-Bce-Nonce", b"authorization"):
        with pytest.raises(Unauthenticated):
            header_map([(name, b"1"), (name.lower(), b"2")])


@given(st.binary(max_size=30))
def test_header_bytes_survive(value: bytes) -> None:
    headers = header_map([(b"host", b"h"), (b"x-bce-meta", value)])
    kept = headers["x-bce-meta"].encode("utf-8", "surrogateescape")
    assert kept == value.strip(b" \t\r\n\x0b\x0c")
    verify(parse(sign(AK, SK, "GET", "/", "", headers, WHEN)), SK, "GET", "/", "", headers, WHEN)


def test_a_signature_in_the_query_is_not_signed_itself() -> None:
    value = sign(AK, SK, "GET", "/f", "a=1", {"host": "h"}, WHEN)
    query = f"a=1&authorization={quote(value)}"
    verify(parse(value), SK, "GET", "/f", query, {"host": "h"}, WHEN, ("host",))


def test_the_body_must_have_the_signed_hash() -> None:
    check_body({"x-bce-content-sha256": "ab"}, "ab")
    for value in ("ac", "", "é", "\udcff", "AB", "ab ", "\tab"):
        headers = {"x-bce-content-sha256": value} if value else {}
        with pytest.raises(Unauthenticated) as caught:
            check_body(headers, "ab")
        assert caught.value.code == "auth_body_hash"


@pytest.mark.parametrize("name", [b"x-bce-nonce", b"x-bce-content-sha256", b"host", b"range"])
def test_the_value_that_is_used_is_the_value_that_was_signed(name: bytes) -> None:
    """Blanks around a value are not signed, so no code behind the check may see them."""
    for value in (b"ab", b"ab ", b"ab\t", b" ab", b"\t ab \t", b"ab\r\n ", b"ab\x0b\x0c"):
        assert header_map([(name, value)]) == {name.decode(): "ab"}
    assert header_map([(name, "ab\u00a0".encode())]) == {name.decode(): "ab\u00a0"}


def test_a_nonce_has_one_form() -> None:
    check_nonce("0123456789abcdef" * 2)
    for wrong in ("", "0" * 31, "0" * 33, "A" * 32, "g" * 32, " " + "0" * 31, "\udcff" * 32):
        with pytest.raises(Unauthenticated) as caught:
            check_nonce(wrong)
        assert caught.value.code == "auth_nonce"
        caught.value.text("zh").encode()


QUERY_STRING = st.lists(
    st.one_of(
        st.sampled_from(["&", "=", "+", "%", "%%", ";", "%26", "%3D", "%2B", "%c3%A4", "%C3", "#"]),
        st.text("aA1.-~/?:@ä\xe4\xc3\xa4\x00 ", max_size=3),
    )
).map(lambda pieces: "".join(pieces).encode("latin-1"))


@given(QUERY_STRING)
def test_two_queries_under_one_signature_say_the_same_to_a_route(query: bytes) -> None:
    """The signed form has the same pairs, so two queries with one signed form have them too."""
    signed = bce_auth._canonical_query(query.decode("latin-1"))
    assert sorted(QueryParams(query).multi_items()) == sorted(QueryParams(signed).multi_items())


def test_quote_can_keep_the_slashes_of_a_path() -> None:
    assert quote("a b/ü~", safe="/") == "a%20b/%C3%BC~"
    assert quote("a/b") == "a%2Fb"


def wire(params: dict[str, str | None]) -> str:
    """A query string as our client sends it; None is a key without `=`."""
    return "&".join(
        quote(key) + ("" if value is None and key else f"={quote(value or '')}")
        for key, value in params.items()
    )


def vendor_sign(
    method: str,
    path: str,
    params: dict[str, str | None],
    headers: dict[str, str],
    when: int,
    expire: int,
    listed: list[str],
) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it calls datetime.utcfromtimestamp
        value: bytes = vendor.sign(
            BceCredentials(AK, SK),
            method.encode(),
            path.encode(),
            {name.encode(): text for name, text in headers.items()},
            params,
            when,
            expire,
            [name.encode() for name in listed],
        )
    return value.decode()


def refusal(
    auth: Authorization,
    method: str = "POST",
    path: str = PATH,
    query: str = QUERY,
    headers: dict[str, str] | None = None,
    sk: str | None = SK,
    now: float = WHEN,
    required: tuple[str, ...] = (),
) -> str | None:
    """The code with which a request is refused, or None."""
    try:
        verify(auth, sk, method, path, query, headers or HEADERS, now, required)
    except Unauthenticated as error:
        return error.code
    return None
