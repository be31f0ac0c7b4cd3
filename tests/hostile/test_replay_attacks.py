"""A captured request, sent again in every disguise: one signature is good for one request.

Each disguise is sent in both orders: after the request itself, which was overheard, and before it,
because it was held back. The server may accept one of the two.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paddlecloud.model.protocol import bce_auth
from paddlecloud.testing import SignedCaller
from tests.hostile.target_server import HOST, TargetServer, prepared, target_server

Header = tuple[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A request as its bytes go over the wire."""

    method: str
    target: str
    headers: tuple[Header, ...]
    body: bytes = b""
    version: str = "1.1"
    chunked: bool = False
    chunk_end: bytes = b"0\r\n\r\n"

    def value(self, name: str) -> bytes:
        return dict(self.headers)[name]

    def having(self, name: str, value: bytes) -> Wire:
        """With another value of one header, in its place."""
        changed = ((key, value if key == name else old) for key, old in self.headers)
        return replace(self, headers=tuple(changed))

    def adding(self, *headers: Header) -> Wire:
        return replace(self, headers=(*self.headers, *headers))

    def changing(self, name: str, change: Callable[[bytes], bytes]) -> Wire:
        return self.having(name, change(self.value(name)))

    def encoded(self, *, close: bool = True) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/{self.version}".encode()]
        lines += [name.encode() + b": " + value for name, value in self.headers]
        if self.chunked:
            lines.append(b"transfer-encoding: chunked")
        elif self.body:
            lines.append(b"content-length: %d" % len(self.body))
        if close:
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""]) + self._payload()

    def _payload(self) -> bytes:
        if not self.chunked:
            return self.body
        middle = len(self.body) // 2
        pieces = [piece for piece in (self.body[:middle], self.body[middle:]) if piece]
        framed = (b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        return b"".join(framed) + self.chunk_end


Disguise = Callable[[Wire], Wire]
SIGNED = (
    "host", "content-type", "x-bce-date", "x-bce-content-sha256", "x-bce-nonce", "authorization",
)  # fmt: skip
_BLANKS: dict[str, Callable[[bytes], bytes]] = {
    "space behind": lambda value: value + b" ",
    "spaces behind": lambda value: value + b"   ",
    "tab behind": lambda value: value + b"\t",
    "blanks behind": lambda value: value + b" \t \t",
    "space before": lambda value: b" " + value,
    "tab before": lambda value: b"\t" + value,
    "vertical tab behind": lambda value: value + b"\x0b",
    "form feed behind": lambda value: value + b"\x0c",
    "carriage return behind": lambda value: value + b"\r",
    "folded line behind": lambda value: value + b"\r\n ",
    "folded line before": lambda value: b"\r\n " + value,
    "no-break space behind": lambda value: value + b"\xa0",
    "UTF-8 no-break space behind": lambda value: value + b"\xc2\xa0",
    "next line behind": lambda value: value + b"\x85",
    "NUL behind": lambda value: value + b"\0",
    "comma behind": lambda value: value + b",",
    "quotes around": lambda value: b'"' + value + b'"',
}
_NAMES: dict[str, Callable[[str], str]] = {
    "name in capitals": str.upper,
    "name in title case": str.title,
    "space behind the name": lambda text: text + " ",
    "underscores in the name": lambda text: text.replace("-", "_"),
}
_TWICE: dict[str, Callable[[Wire, str], Wire]] = {
    "the same twice": lambda wire, name: wire.adding((name, wire.value(name))),
    "twice, the other case": lambda wire, name: wire.adding((name.upper(), wire.value(name))),
    "another one behind": lambda wire, name: wire.adding((name, fresh(name))),
    "another one before": lambda wire, name: replace(
        wire, headers=((name, fresh(name)), *wire.headers)
    ),
    "an empty one behind": lambda wire, name: wire.adding((name, b"")),
    "empty": lambda wire, name: wire.having(name, b""),
    "in a trailer too": lambda wire, name: replace(
        wire, chunked=True, chunk_end=b"0\r\n%b: %b\r\n\r\n" % (name.encode(), fresh(name))
    ),
}
_LETTERS: dict[str, Disguise] = {
    "nonce in capitals": lambda wire: wire.changing("x-bce-nonce", bytes.upper),
    "digest in capitals": lambda wire: wire.changing("x-bce-content-sha256", bytes.upper),
    "signature in capitals": lambda wire: wire.changing(
        "authorization", lambda value: value[:-64] + value[-64:].upper()
    ),
    "access key in capitals": lambda wire: wire.changing(
        "authorization", lambda value: b"/".join(_upper_second(value.split(b"/")))
    ),
    "scheme in capitals": lambda wire: wire.changing(
        "authorization", lambda value: value.replace(b"bce-auth-v1", b"BCE-AUTH-V1")
    ),
    "a longer nonce": lambda wire: wire.changing("x-bce-nonce", lambda value: value + b"0"),
    "another nonce": lambda wire: wire.having("x-bce-nonce", fresh("x-bce-nonce")),
    "seconds with a zero in front": lambda wire: wire.changing(
        "authorization", lambda value: value.replace(b"/1800/", b"/01800/")
    ),
    "list of signed headers in capitals": lambda wire: _listed(wire, _upper),
    "list of signed headers reversed": lambda wire: _listed(wire, lambda names: names[::-1]),
    "list of signed headers twice": lambda wire: _listed(wire, lambda names: names * 2),
    "one more signed header that is not there": lambda wire: _listed(
        wire, lambda names: [*names, b"range"]
    ),
    "one signed header less": lambda wire: _listed(wire, lambda names: names[1:]),
    "an empty name among the signed headers": lambda wire: _listed(
        wire, lambda names: [*names, b""]
    ),
    "no list of signed headers": lambda wire: _listed(wire, lambda _names: []),
}
_MORE: dict[str, Disguise] = {
    "headers in another order": lambda wire: replace(wire, headers=wire.headers[::-1]),
    "one more header": lambda wire: wire.adding(("x-forwarded-for", b"10.0.0.1")),
    "one more x-bce header": lambda wire: wire.adding(("x-bce-request-id", b"1")),
    "an empty x-bce header": lambda wire: wire.adding(("x-bce-request-id", b"")),
    "a checksum that is not signed": lambda wire: wire.adding(("x-bce-content-crc32", b"0" * 8)),
    "another language": lambda wire: wire.adding(("accept-language", b"zh")),
    "said to be compressed": lambda wire: wire.adding(("content-encoding", b"deflate")),
    "method override": lambda wire: wire.adding(("x-http-method-override", b"DELETE")),
    "another method": lambda wire: replace(
        wire, method={"GET": "HEAD", "POST": "PUT"}[wire.method]
    ),
    "method in small letters": lambda wire: replace(wire, method=wire.method.lower()),
    "HTTP/1.0": lambda wire: replace(wire, version="1.0"),
    "in chunks": lambda wire: replace(wire, chunked=True),
    "in chunks with a trailer": lambda wire: replace(
        wire, chunked=True, chunk_end=b"0\r\nx-more: 1\r\n\r\n"
    ),
    "another body": lambda wire: replace(wire, body=wire.body + b" "),
}
_TARGETS: dict[str, Callable[[str], str]] = {
    "a letter of the path encoded": lambda text: text.replace("/api/", "/%61pi/", 1),
    "a slash of the path encoded": lambda text: text.replace("/v1/", "%2Fv1/", 1),
    "a slash more": lambda text: text.replace("/v1/", "/v1//", 1),
    "a dot segment": lambda text: text.replace("/v1/", "/v1/./", 1),
    "two dot segments": lambda text: text.replace("/v1/", "/v1/x/../", 1),
    "a slash at the end of the path": lambda text: text.replace("?", "/?", 1),
    "a parameter of the path": lambda text: text.replace("?", ";x=1?", 1),
    "a NUL at the end of the path": lambda text: text.replace("?", "%00?", 1),
    "path in capitals": lambda text: text.replace("/api/v1/", "/API/V1/", 1),
    "absolute form": lambda text: f"http://{HOST}{text}",
    "absolute form of another server": lambda text: f"http://evil.example{text}",
    "a fragment": lambda text: f"{text}#x",
    "pairs in another order": lambda text: _pairs(text, lambda pairs: pairs[::-1]),
    "an empty pair": lambda text: f"{text}&",
    "empty pairs": lambda text: text.replace("&", "&&"),
    "blank as %20": lambda text: text.replace("+", "%20"),
    "small hexadecimal digits": lambda text: text.replace("%C3%A4", "%c3%a4"),
    "bytes that are not encoded": lambda text: text.replace("%C3%A4", "\xe4"),
    "a letter of the query encoded": lambda text: text.replace("name=", "n%61me="),
    "an encoded ampersand": lambda text: text.replace("&", "%26"),
    "a semicolon for an ampersand": lambda text: text.replace("&", ";"),
    "a pair more": lambda text: f"{text}&limit=2",
    "the same pair twice": lambda text: f"{text}&limit=1",
    "a pair less": lambda text: _pairs(text, lambda pairs: pairs[1:]),
    "a second question mark": lambda text: text.replace("?", "??", 1),
    "a signature in the query": lambda text: f"{text}&authorization=x",
    "an encoded signature in the query": lambda text: f"{text}&%61uthorization=x",
}


def _with_value(name: str, change: Callable[[bytes], bytes]) -> Disguise:
    return lambda wire: wire.changing(name, change)


def _with_name(name: str, change: Callable[[str], str]) -> Disguise:
    return lambda wire: replace(
        wire, headers=tuple((change(k) if k == name else k, v) for k, v in wire.headers)
    )


def _with_header(name: str, change: Callable[[Wire, str], Wire]) -> Disguise:
    return lambda wire: change(wire, name)


def _with_target(change: Callable[[str], str]) -> Disguise:
    return lambda wire: replace(wire, target=change(wire.target))


BLANKS = {f"{n}: {how}": _with_value(n, it) for n in SIGNED for how, it in _BLANKS.items()}
DISGUISES: dict[str, Disguise] = {
    "none": lambda wire: wire,
    **BLANKS,
    **{f"{n}: {how}": _with_name(n, it) for n in SIGNED for how, it in _NAMES.items()},
    **{f"{n}: {how}": _with_header(n, it) for n in SIGNED for how, it in _TWICE.items()},
    **_LETTERS,
    **_MORE,
    **{how: _with_target(it) for how, it in _TARGETS.items()},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetServer]:
    with target_server(tmp_path_factory.mktemp("replays")) as made:
        yield made
        assert "Traceback" not in made.journal()


@pytest.fixture
def alice(site: TargetServer) -> SignedCaller:
    return site.people["alice"]


def reading(caller: SignedCaller) -> Wire:
    return captured(caller, "GET", "/api/v1/jobs", "limit=1&name=a+%C3%A4")


def writing(caller: SignedCaller) -> Wire:
    """With a query that the route has no use for, so that the query can be disguised too."""
    return captured(caller, "POST", "/api/v1/snapshots", "limit=1&name=a", b'{"entries": []}')


def captured(
    caller: SignedCaller,
    method: str,
    path: str,
    query: str = "",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Wire:
    more = headers or {}
    headers = caller.headers(method, path, query, body)
    headers |= {"content-type": "application/json"} | more
    del headers["authorization"]
    now = int(caller.clock())
    headers["authorization"] = bce_auth.sign(
        caller.ak, caller.sk, method, path, query, headers, now
    )
    wire = tuple((name, value.encode()) for name, value in headers.items())
    return Wire(method=method, target=f"{path}?{query}", headers=wire, body=body)


def fresh(name: str) -> bytes:
    """Another value for this header, of the form that it has to have."""
    forms = {
        "host": b"localhost", "content-type": b"text/plain", "x-bce-date": b"2020-01-01T00:00:00Z",
        "x-bce-content-sha256": hashlib.sha256(secrets.token_bytes(8)).hexdigest().encode(),
        "x-bce-nonce": secrets.token_hex(16).encode(),
    }  # fmt: skip
    return forms.get(name, b"bce-auth-v1/a/2020-01-01T00:00:00Z/1800/host/" + b"0" * 64)


def _upper_second(parts: list[bytes]) -> list[bytes]:
    return [parts[0], parts[1].upper(), *parts[2:]]


def _upper(names: list[bytes]) -> list[bytes]:
    return [name.upper() for name in names]


def _listed(wire: Wire, change: Callable[[list[bytes]], list[bytes]]) -> Wire:
    parts = wire.value("authorization").split(b"/")
    parts[4] = b";".join(change(parts[4].split(b";")))
    return wire.having("authorization", b"/".join(parts))


def _pairs(target: str, change: Callable[[list[str]], list[str]]) -> str:
    path, query = target.split("?")
    return f"{path}?{'&'.join(change(query.split('&')))}"


def statuses(site: TargetServer, data: bytes) -> list[int]:
    """The statuses of all responses to these bytes, until the server closes."""
    with closing(socket.create_connection((HOST, site.server.port), 20)) as link:
        link.sendall(data)
        found = b""
        while piece := link.recv(65536):
            found += piece
    return [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]


def accepted(site: TargetServer, *wires: Wire) -> list[bool]:
    answers = [statuses(site, wire.encoded()) for wire in wires]
    assert all(status < 500 for each in answers for status in each), answers
    return [any(status < 400 for status in each) for each in answers]


@pytest.mark.parametrize("capture", [reading, writing])
@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_request_counts_as_the_same(
    site: TargetServer, alice: SignedCaller, capture: Callable[[SignedCaller], Wire], disguise: str
) -> None:
    change = DISGUISES[disguise]
    overheard = capture(alice)
    assert accepted(site, overheard, change(overheard)) == [True, False]
    held_back = capture(alice)
    assert sum(accepted(site, change(held_back), held_back, held_back)) <= 1


def test_of_many_copies_at_once_one_is_accepted(site: TargetServer, alice: SignedCaller) -> None:
    wire = writing(alice)
    copies = [wire, *(change(wire) for change in BLANKS.values())]
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda copy: accepted(site, copy)[0], copies)
        assert sum(answers) == 1


def test_a_copy_behind_it_on_the_same_connection_is_refused(
    site: TargetServer, alice: SignedCaller
) -> None:
    wire = writing(alice)
    both = wire.encoded(close=False) + wire.changing("x-bce-nonce", lambda v: v + b" ").encoded()
    assert statuses(site, both) == [200, 401]


@pytest.mark.parametrize(
    "nonce",
    [
        "",
        "0",
        "0" * 31,
        "0" * 33,
        "g" * 32,
        "A" * 32,
        "a" * 31 + " ",
        "a" * 15 + "  " + "a" * 15,
        "a" * 31 + "\u0661",
        "８" * 32,
        "%30" * 10 + "00",
        "0x" + "0" * 30,
    ],
)
def test_a_nonce_has_one_form(site: TargetServer, alice: SignedCaller, nonce: str) -> None:
    wire = captured(alice, "GET", "/api/v1/whoami", headers={"x-bce-nonce": nonce})
    assert accepted(site, wire) == [False]


@pytest.mark.parametrize("word", ["UNSIGNED-PAYLOAD", "SEALED-FRAMES"])
def test_only_its_own_route_takes_a_word_for_a_digest(
    site: TargetServer, alice: SignedCaller, word: str
) -> None:
    """Also not with blanks behind it, by which it would be another word."""
    for digest in (word, word.lower(), f"{word} ", f"{word}\t"):
        for path in ("/api/v1/snapshots", "/api/v1/blobs"):
            for extra in ({}, {"x-bce-content-crc32": "00000000"}):
                more = {"x-bce-content-sha256": digest, **extra}
                wire = captured(alice, "POST", path, "", b'{"entries": []}', more)
                assert accepted(site, wire) == [False]


def test_the_checksum_of_a_part_is_signed_whatever_stands_behind_the_word(
    site: TargetServer, alice: SignedCaller
) -> None:
    data = secrets.token_bytes(40)
    sha256 = hashlib.sha256(data).hexdigest()
    alice.post("/api/v1/uploads", {"sha256": sha256, "size": len(data)})
    for word in ("UNSIGNED-PAYLOAD", "UNSIGNED-PAYLOAD ", "UNSIGNED-PAYLOAD\t"):
        more = {"x-bce-content-sha256": word}
        wire = captured(alice, "PUT", f"/api/v1/uploads/{sha256}/1", "", data, more)
        assert accepted(site, wire.adding(("x-bce-content-crc32", b"00000000"))) == [False]


def test_what_was_changed_just_before_a_kill_is_not_changed_again(tmp_path: Path) -> None:
    """A nonce is at least as durable as what its request changed."""
    killed = prepared(tmp_path / "killed")
    try:
        process = killed.server.start()
        admin, asked = killed.server.caller(), b'{"name": "once"}'
        wires = [captured(admin, "POST", "/api/v1/tokens", "", asked) for _ in range(5)]
        assert accepted(killed, *wires) == [True] * 5
        process.kill()
        process.wait(60)
        killed.server.start()
        assert accepted(killed, *wires) == [False] * 5
        found = killed.server.caller().get("/api/v1/tokens")["tokens"]
        assert [row["name"] for row in found].count("once") == 5
    finally:
        killed.server.close()
