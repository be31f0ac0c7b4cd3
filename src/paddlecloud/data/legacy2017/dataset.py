"""`convert`, `split` and `cluster_files_reader`: data sets into files, and files to trainers.

Names and signatures are those of `paddle.v2.dataset.common`. The functions of 2017 put one sample
too many into the first batch or file; `compat="2017"` reproduces that.
"""

from __future__ import annotations

import glob
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, BinaryIO

from paddlecloud.data.legacy2017 import pickles
from paddlecloud.data.recordio.atomic_file import SafeFile
from paddlecloud.data.recordio.record_writer import CHUNK_BYTES, Writer
from paddlecloud.data.shard import share

Samples = Callable[[], Iterable[Any]] | Iterable[Any]
COMPATS = (None, "2017")


def convert(  # noqa: PLR0913 - the first five are the signature of 2017, the others go by name
    output_path: str,
    reader: Samples,
    num_shards: int | None = None,
    name_prefix: str = "data",
    max_lines_to_shuffle: int = 1000,
    *,
    line_count: int | None = None,
    shuffle: bool | None = None,
    seed: int | None = None,
    dumps: Callable[[Any], bytes] = pickles.dumps,
    compressor: str = "snappy",
    max_chunk_bytes: int = CHUNK_BYTES,
    compat: str | None = None,
) -> list[str]:
    """Write the samples of a reader into RecordIO files; returns their paths.

    With `num_shards` there are that many files, `<prefix>-00000-of-00009` for ten: the samples are
    shuffled in batches and dealt out in turn, and the files appear together at the end. With
    `line_count` each file has that many samples, in order, and appears when it is full.
    """
    _check_compat(compat)
    if (num_shards is None) == (line_count is None):
        raise ValueError("convert needs num_shards or line_count, one of the two")
    numbers = {"num_shards": num_shards, "line_count": line_count}
    for name, value in (numbers | {"max_lines_to_shuffle": max_lines_to_shuffle}).items():
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: it is at least 1")
    Path(output_path).mkdir(parents=True, exist_ok=True)
    if shuffle is None:
        shuffle = num_shards is not None or compat == "2017"
    shards = _Shards(Path(output_path), name_prefix, compressor, max_chunk_bytes)
    if num_shards is not None:
        batches = _batches(reader, max_lines_to_shuffle, compat)
        shards.deal(num_shards, _mixed(batches, shuffle, seed), dumps)
    else:
        assert line_count is not None
        batches = _batches(reader, line_count, compat, trailing=compat == "2017")
        shards.fill(_mixed(batches, shuffle, seed), dumps)
    return shards.paths


def split(
    reader: Samples,
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[Any, BinaryIO], object] = pickles.dump,
    *,
    compat: str | None = None,
) -> list[str]:
    """Write the samples into files of `line_count`, each one list; returns their paths.

    `suffix` is the whole path with a place for the number, and `dumper(samples, file)` writes.
    """
    _check_compat(compat)
    if not callable(dumper):
        raise TypeError("dumper should be callable.")
    if line_count < 1:
        raise ValueError(f"line_count={line_count}: a file has at least 1 sample")
    paths = []
    for number, samples in enumerate(_batches(reader, line_count, compat)):
        with SafeFile(suffix % number) as file:
            dumper(samples, file)
        paths.append(suffix % number)
    return paths


def cluster_files_reader(
    files_pattern: str,
    trainer_count: int | None = None,
    trainer_id: int | None = None,
    loader: Callable[[BinaryIO], Iterable[Any]] = pickles.load,
    *,
    train_id: int | None = None,
) -> Callable[[], Iterator[Any]]:
    """A reader of this trainer's files: number `i` of the sorted ones if `i % count == id`.

    Without numbers the environment decides. `train_id` is another spelling of `trainer_id`. The
    default loader unpickles: use `safe_load` for data that is not yours. FileNotFoundError, when
    the reader starts, if no file matches.
    """
    if trainer_id is not None and train_id is not None and trainer_id != train_id:
        raise ValueError(f"trainer_id={trainer_id} and train_id={train_id} are the same thing")
    wanted = train_id if trainer_id is None else trainer_id

    def reader() -> Iterator[Any]:
        if not callable(loader):
            raise TypeError("loader should be callable.")
        mine = share(trainer_count, wanted)
        if mine.trainer_count < 1:
            raise ValueError(f"trainer_count={mine.trainer_count}: there is at least 1 trainer")
        if not 0 <= mine.trainer_id < mine.trainer_count:
            _print(f"invalid trainer_id: {mine.trainer_id}")
            return
        paths = sorted(glob.glob(files_pattern))  # noqa: PTH207 - the pattern as written
        if not paths:
            raise FileNotFoundError(f"no file matches {files_pattern!r}")
        for path in paths[mine.trainer_id :: mine.trainer_count]:
            _print(f"append file: {path}")
            with Path(path).open("rb") as file:
                yield from loader(file)

    return reader


class _Shards:
    """The files of one `convert`."""

    def __init__(self, directory: Path, prefix: str, compressor: str, max_chunk_bytes: int) -> None:
        self._directory = directory
        self._prefix = prefix
        self._compressor = compressor
        self._max_chunk_bytes = max_chunk_bytes
        self.paths: list[str] = []

    def deal(self, count: int, batches: Iterable[list[Any]], dumps: Callable[[Any], bytes]) -> None:
        """The number behind `of` is the last index, as in 2017. Each batch begins at file 0."""
        names = [f"{self._prefix}-{n:05d}-of-{count - 1:05d}" for n in range(count)]
        with ExitStack() as open_files:  # all get their names together, or none does
            writers = [open_files.enter_context(self._writer(name)) for name in names]
            for batch in batches:
                for number, sample in enumerate(batch):
                    writers[number % count].write(dumps(sample))

    def fill(self, batches: Iterable[list[Any]], dumps: Callable[[Any], bytes]) -> None:
        for number, batch in enumerate(batches):
            with self._writer(f"{self._prefix}-{number:05d}") as writer:
                writer.write_all(map(dumps, batch))

    def _writer(self, name: str) -> Writer:
        path = self._directory / name
        self.paths.append(str(path))
        return Writer(path, compressor=self._compressor, max_chunk_bytes=self._max_chunk_bytes)


def _batches(
    reader: Samples, size: int, compat: str | None, *, trailing: bool = False
) -> Iterator[list[Any]]:
    """Lists of `size` samples. In 2017 the first had one more, and `convert` by lines ended with
    whatever was left, also with nothing."""
    samples = iter(reader() if callable(reader) else reader)
    first = size + 1 if compat == "2017" else size
    for wanted in chain((first,), repeat(size)):
        batch = list(islice(samples, wanted))
        if len(batch) < wanted:
            break
        yield batch
    if batch or trailing:
        yield batch


def _mixed(batches: Iterable[list[Any]], shuffle: bool, seed: int | None) -> Iterator[list[Any]]:
    chance = random.Random(seed)
    for batch in batches:
        if shuffle:
            chance.shuffle(batch)
        yield batch


def _check_compat(compat: str | None) -> None:
    if compat not in COMPATS:
        raise ValueError(f'compat={compat!r}: it is None or "2017"')


def _print(line: str) -> None:
    """One line in the log of the job, as in 2017."""
    sys.stdout.write(line + "\n")
