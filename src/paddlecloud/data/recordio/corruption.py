"""Corruption of RecordIO files: `Damage` with location and reason, `DamagedFile`. It is found, and
skipped, by `_chunk_scan`.

The messages are here and not in `paddlecloud.messages`, because this package can be used alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Sentences by reason, English and Chinese.
REASONS = {
    "header_cut": (
        "the header of a chunk takes 20 bytes and the file ends after {got}",
        "块头应为 20 字节，文件在 {got} 字节后结束",
    ),
    "magic": (
        "no chunk begins here: found {found} instead of 04030201",
        "此处不是块的开头：应为 04030201，实际为 {found}",
    ),
    "magic_swapped": (
        "the magic number has its bytes in big-endian order; RecordIO is little-endian",
        "魔数为大端字节序，RecordIO 应为小端字节序",
    ),
    "compressor": (
        "compressor {code} is unknown; 0 none, 1 snappy and 2 gzip exist",
        "未知的压缩方式 {code}；只有 0（无）、1（snappy）、2（gzip）",
    ),
    "size": (
        "the header states {size} bytes, but only {left} follow",
        "块头声明后面有 {size} 字节，实际只有 {left} 字节",
    ),
    "fluid": (
        'this is the header order of Paddle Fluid (2018), not ours: read it with layout="fluid"',
        '这是 Paddle Fluid（2018）的块头顺序，格式不同：请用 layout="fluid" 读取',
    ),
    "not_fluid": (
        'this is the header order of 2017, not that of Paddle Fluid: read it with layout="2017"',
        '这是 2017 年的块头顺序，不是 Paddle Fluid 格式：请用 layout="2017" 读取',
    ),
    "checksum": (
        "the checksum is {found:08x}, the header states {stated:08x}",
        "校验和为 {found:08x}，块头声明为 {stated:08x}",
    ),
    "too_large": (
        "the chunk would take {size} bytes of memory, more than the limit of {limit}",
        "该块需要 {size} 字节内存，超过上限 {limit}",
    ),
    "compressed": ("the compressed data is broken: {why}", "压缩数据已损坏：{why}"),
    "count": (
        "the header states {count} records, which its {size} bytes cannot hold",
        "块声明有 {count} 条记录，但其 {size} 字节容纳不下",
    ),
    "length": (
        "record {record} reaches beyond the end of the chunk",
        "第 {record} 条记录超出了块的末尾",
    ),
    "surplus": (
        "{size} bytes are left over after the {count} records of the chunk",
        "块中 {count} 条记录之后还剩余 {size} 字节",
    ),
}  # fmt: skip
_WHERE = (
    "{path}: chunk {chunk} at byte {offset}: {reason}",
    "{path}：第 {chunk} 块（偏移 {offset}）：{reason}",
)
_KEPT = "; this is no torn end, so nothing was cut off: run `paddlecloud data repair {path}`"


class Broken(Exception):
    """Internal: a chunk is invalid; callers that know its location raise DamagedFile."""

    def __init__(self, reason: str, **params: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.params = params


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One damaged range of a file: `[offset, end)`, where chunk number `chunk` should be."""

    path: str
    chunk: int
    offset: int
    end: int
    reason: str
    params: Mapping[str, object] = field(default_factory=dict)

    def why(self, lang: str = "en") -> str:
        """The reason as text."""
        return REASONS[self.reason][lang == "zh"].format_map(self.params)

    def text(self, lang: str = "en") -> str:
        """File, chunk, offset and reason in one sentence."""
        return _WHERE[lang == "zh"].format(
            path=self.path, chunk=self.chunk, offset=self.offset, reason=self.why(lang)
        )


class DamagedFile(ValueError):
    """A file is corrupt; `damage` has location and reason. `kept`: it was to be appended to, and
    was left unchanged."""

    def __init__(self, damage: Damage, kept: bool = False) -> None:
        super().__init__(damage.text() + (_KEPT.format(path=damage.path) if kept else ""))
        self.damage = damage
        self.kept = kept

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[Damage, bool]]:
        """Loader processes send their errors by pickle."""
        return type(self), (self.damage, self.kept)
