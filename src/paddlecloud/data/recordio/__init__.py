"""RecordIO: the face of the library of 2017, and a modern one.

`writer` and `reader` are what `import recordio` gave: `read()` returns bytes, None at the end. What
ended the process there raises here, and a second `close` is harmless. `Writer`, `Reader` and
`Index` are for new programs.
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
    """`writer(path)`: snappy, chunks of 32 MiB, the file is there from the beginning."""

    def __init__(self, path: str) -> None:
        super().__init__(path, max_chunk_bytes=CHUNK_BYTES_2017, in_place=True)


class reader(Reader):
    """`reader(path)`: a list of patterns with commas. Damage raises; it looked like an end then."""

    def __init__(self, path: Target | Iterable[Target]) -> None:
        super().__init__(path)
