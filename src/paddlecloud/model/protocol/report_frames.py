"""Frames of an exchange: an agent's reports and their answers over one request that stays open.

A report goes as `length | seal | report`, its answer as `length | answer`; lengths are 4 bytes. The
head of the request is signed like any other. The seal of a report is an HMAC over its number in the
exchange and its bytes, under a key that both ends derive from the secret key and the nonce of that
head: nobody between them can add, change, drop or repeat one unseen, at a tenth of what a signed
request costs.
"""

from __future__ import annotations

import hmac

from paddlecloud.model.errors import TooLarge, Unauthenticated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LENGTH = 4
SEAL = 32
#: Bytes of a report; a longer one is worth a request of its own.
LONGEST = 64 * 1024
#: Stands in the head in the place of the digest of a body that has no end yet.
SEALED = "SEALED-FRAMES"


def key_of(sk: str, nonce: str) -> bytes:
    """What the reports of the exchange with this nonce are sealed with."""
    return hmac.digest(sk.encode(), b"exchange:" + nonce.encode(), "sha256")


class Seals:
    """Seals the reports of one exchange. Made once for all of them: to find the hash function
    anew takes longer than to hash a short report."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")

    def of(self, number: int, report: bytes) -> bytes:
        """They are counted from 0."""
        seal = self._keyed.copy()
        seal.update(number.to_bytes(8, "big") + report)
        return seal.digest()

    def sealed(self, number: int, report: bytes) -> bytes:
        """A report as it goes on the wire."""
        return b"%b%b%b" % (len(report).to_bytes(LENGTH, "big"), self.of(number, report), report)


def framed(answer: bytes) -> bytes:
    return len(answer).to_bytes(LENGTH, "big") + answer


class Reports:
    """The reports out of a stream that is cut anywhere. The key is one of `keys`."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._seals = tuple(map(Seals, keys))
        self._kept = bytearray()
        self._number = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Every report that is whole by now; raises at one that is not what was sealed."""
        self._kept += piece
        while len(self._kept) >= LENGTH:
            length = int.from_bytes(self._kept[:LENGTH], "big")
            if length > LONGEST:
                raise TooLarge("body_too_large", limit=LONGEST)
            start = LENGTH + SEAL
            end = start + length
            if len(self._kept) < end:
                return
            seal, report = bytes(self._kept[LENGTH:start]), bytes(self._kept[start:end])
            del self._kept[:end]
            yield self._opened(seal, report)

    def _opened(self, seal: bytes, report: bytes) -> bytes:
        for seals in self._seals:
            if hmac.compare_digest(seal, seals.of(self._number, report)):
                self._seals = (seals,)
                self._number += 1
                return report
        raise Unauthenticated("auth_body_hash")
