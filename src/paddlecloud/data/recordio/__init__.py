"""RecordIO files: `Writer`, `Reader` and `Index`; `verify`, `repair` and `recover`.

`writer` and `reader` are the interface of the library of 2017: `read()` returns bytes, None at the
end. Errors that ended the process there raise here, and `close` is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddlecloud.data.recordio.corruption import Damage, DamagedFile
from paddlecloud.data.recordio.index import Chunk, Index
from paddlecloud.data.recordio.record_reader import Reader
from paddlecloud.data.recordio.record_writer import CHUNK_BYTES_2017, Writer
from paddlecloud.data.recordio.repair import Report, recover, repair, verify
from paddlecloud.data.recordio.source import Target

__all__ = [
    "Chunk", "Damage", "DamagedFile", "Index", "Reader", "Report", "Writer", "reader", "recover",
    "repair", "verify", "writer",
]  # fmt: skip


class writer(Writer):
    """`writer(path)`: snappy, chunks of 32 MiB, written in place."""

    def __init__(self, path: str) -> None:
        super().__init__(path, max_chunk_bytes=CHUNK_BYTES_2017, in_place=True)


class reader(Reader):
    """`reader(path)`: comma-separated patterns. Damage raises; in 2017 it ended the file."""

    def __init__(self, path: Target | Iterable[Target]) -> None:
        super().__init__(path)
