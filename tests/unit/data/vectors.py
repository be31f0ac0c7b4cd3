"""Files whose bytes are known: written by the library of 2017, or read by it."""

from __future__ import annotations

import struct
import zlib

HELLO = [b"Hello", b"World!"]


def _hex(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


V0 = b""
V1 = _hex(
    """040302015c2b1953010000002500000002000000ff060000734e615070590117
    0000b2db730a0500000048656c6c6f06000000576f726c6421"""
)
V2 = _hex(
    """04030201b50239e4010000001600000001000000ff060000734e615070590108
    0000a67b113a00000000"""
)
V3 = _hex(
    """0403020190413d61010000002000000003000000ff060000734e615070590112
    000015c029330100000031010000003200000000"""
)
V3B = _hex(
    """040302015472fcca010000004a00000001000000ff060000734e61507059003c
    00002accadf7ec0710e803000061fe0100fe0100fe0100fe0100fe0100fe0100
    fe0100fe0100fe0100fe0100fe0100fe0100fe0100fe0100fe01009a0100"""
)
V4 = _hex(
    """04030201837e47590000000013000000020000000500000048656c6c6f060000
    00576f726c642104030201a3279ca50000000005000000010000000100000078"""
)
V5 = _hex(
    """040302015c2b1953010000002500000002000000ff060000734e615070590117
    0000b2db730a0500000048656c6c6f06000000576f726c642104030201918
    9edbc010000001700000001000000ff060000734e61507059010900001cf739
    cd0100000078"""
)
V6 = _hex(
    """04030201ce05ed8d0200000025000000020000001f8b08000000000002ff6365
    6060f048cdc9c9670332c2f38b72521401837e4759130000000403020156df95
    2d0200000019000000010000001f8b08000000000002ff63646060a80000a327
    9ca505000000"""
)
V7 = _hex(
    """040302019362159b010000003800000002000000ff060000734e61507059012a
    0000585d4c3c0f0000002849310a49320a49330a7470310a2e0f000000284934
    0a49350a49360a7470310a2e"""
)
V8 = _hex(
    """04030201051f315401000000440000000a000000ff060000734e615070590136
    0000d780dad20100000030010000003101000000320100000033010000003401
    000000350100000036010000003701000000380100000039"""
)
VECTORS = {
    "V0": (V0, []),
    "V1": (V1, HELLO),
    "V2": (V2, [b""]),
    "V3": (V3, [b"1", b"2", b""]),
    "V3b": (V3B, [b"a" * 1000]),
    "V4": (V4, [*HELLO, b"x"]),
    "V5": (V5, [*HELLO, b"x"]),
    "V6": (V6, [*HELLO, b"x"]),
    "V7": (V7, [b"(I1\nI2\nI3\ntp1\n.", b"(I4\nI5\nI6\ntp1\n."]),
    "V8": (V8, [str(n).encode() for n in range(10)]),
}


def framed(records: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(record)) + record for record in records)


def chunk(
    records: list[bytes],
    *,
    payload: bytes | None = None,
    compressor: int = 0,
    size: int | None = None,
    count: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """A chunk made by hand, without compression; each field may lie."""
    payload = framed(records) if payload is None else payload
    numbers = (
        zlib.crc32(payload) if checksum is None else checksum,
        compressor,
        len(payload) if size is None else size,
        len(records) if count is None else count,
    )
    return b"\x04\x03\x02\x01" + struct.pack("<4I", *numbers) + payload


def fluid_chunk(records: list[bytes]) -> bytes:
    """The same with the fields in the order of Paddle Fluid."""
    payload = framed(records)
    fields = struct.pack("<4I", len(records), zlib.crc32(payload), 0, len(payload))
    return b"\x04\x03\x02\x01" + fields + payload
