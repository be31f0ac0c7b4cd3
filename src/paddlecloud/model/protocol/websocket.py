"""Frames of the WebSocket protocol (RFC 6455, section 5): heads, masks, the key of the handshake.

Client, agent and server share it. No I/O.
"""

from __future__ import annotations

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
#: Bytes of a frame that is accepted: our own have 64 KiB, but a proxy may join some.
MAX_FRAME = 1024 * 1024
#: A masking key that changes nothing.
NO_MASK = b"\0\0\0\0"
_LAST = 0x80
_MASKED = 0x80
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class FrameHead:
    """The head of a frame: `end` is where its payload begins."""

    __slots__ = ("end", "key", "kind", "last", "size")

    def __init__(self, kind: int, last: bool, size: int, key: bytes | None, end: int) -> None:
        self.kind = kind
        self.last = last
        self.size = size
        #: None: the payload is not masked.
        self.key = key
        self.end = end

    @property
    def too_long(self) -> bool:
        return self.size > MAX_FRAME


def read_head(data: bytes, at: int) -> FrameHead | None:
    """The head that begins at this offset; None if it is not complete."""
    left = len(data) - at
    if left < 2:
        return None
    first, second = data[at], data[at + 1]
    size, end = second & 0x7F, at + 2
    extra = {126: 2, 127: 8}.get(size, 0)
    key_size = 4 if second & _MASKED else 0
    if left < 2 + extra + key_size:
        return None
    if extra:
        size = int.from_bytes(data[end : end + extra], "big")
        end += extra
    key = data[end : end + key_size] if key_size else None
    return FrameHead(first & 0x0F, bool(first & _LAST), size, key, end + key_size)


def frame_head(kind: int, size: int, key: bytes | None = None, *, last: bool = True) -> bytes:
    """The head of a frame; with a key, the payload has to be masked by it."""
    first = kind | (_LAST if last else 0)
    mask = _MASKED if key is not None else 0
    if size < 126:
        head = bytes((first, mask | size))
    elif size < 1 << 16:
        head = bytes((first, mask | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, mask | 127)) + size.to_bytes(8, "big")
    return head + (key or b"")


def masked(data: bytes | bytearray, key: bytes) -> bytes | bytearray:
    """The payload under this key; the same again undoes it."""
    if key == NO_MASK:
        return data
    out = bytearray(len(data))
    for i in range(4):  # faster than arithmetic on long integers: 400 MB/s against 260
        out[i::4] = data[i::4].translate(_table(key[i]))
    return out


def accept_key(key: str) -> str:
    """What a server answers to the key of a handshake."""
    from base64 import b64encode  # noqa: PLC0415 - few commands open one
    from hashlib import sha1  # noqa: PLC0415 - as above

    return b64encode(sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def _table(byte: int) -> bytes:
    found = _tables.get(byte)
    if found is None:
        found = _tables[byte] = bytes(each ^ byte for each in range(256))
    return found


_tables: dict[int, bytes] = {}
