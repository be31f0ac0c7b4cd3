"""The header of a chunk: 20 bytes, five little-endian numbers. The payload is in `_codec`.

Two layouts of the same fields exist under the same magic number: that of 2017, which we write, and
that of Paddle Fluid (2018). The checksum distinguishes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from paddlecloud.data.recordio.corruption import Broken

MAGIC = b"\x04\x03\x02\x01"
HEADER_BYTES = 20
NONE, SNAPPY, GZIP = 0, 1, 2
COMPRESSORS = {"none": NONE, "snappy": SNAPPY, "gzip": GZIP}
NAMES = {code: name for name, code in COMPRESSORS.items()}
LAYOUTS = ("2017", "fluid")
_FIELDS = struct.Struct("<4I")


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a header; `size` is that of the stored payload."""

    checksum: int
    compressor: int
    size: int
    count: int

    def packed(self) -> bytes:
        return MAGIC + _FIELDS.pack(self.checksum, self.compressor, self.size, self.count)


def parse(head: bytes, layout: str = "2017") -> Header:
    """The header in these bytes; Broken if they are none. Sizes are not checked."""
    if not MAGIC.startswith(head[:4]):
        swapped = head[:4] == MAGIC[::-1]
        raise Broken("magic_swapped" if swapped else "magic", found=head[:4].hex())
    if len(head) < HEADER_BYTES:
        raise Broken("header_cut", got=len(head))
    return fields(head, layout)


def fields(head: bytes, layout: str) -> Header:
    """The fields in the given layout, unchecked."""
    first, second, third, fourth = _FIELDS.unpack_from(head, 4)
    if layout == "fluid":
        return Header(checksum=second, compressor=third, size=fourth, count=first)
    return Header(checksum=first, compressor=second, size=third, count=fourth)


def other(layout: str) -> str:
    return LAYOUTS[layout == "2017"]
