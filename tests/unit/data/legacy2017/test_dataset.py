"""convert, split and cluster_files_reader: where each sample lands, then and now."""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.data import (
    cluster_files_reader,
    convert,
    recordio,
    records,
    safe_load,
    samples,
    split,
    this_trainer,
)
from paddlecloud.data.legacy2017 import pickles


def reader(count: int) -> Callable[[], Iterator[int]]:
    return lambda: iter(range(count))


def shards(paths: list[str]) -> list[list[Any]]:
    return [[pickles.loads(record) for record in recordio.Reader(Path(path))] for path in paths]


def sizes(paths: list[str]) -> list[int]:
    return [len(shard) for shard in shards(paths)]


@pytest.mark.parametrize(
    ("count", "num_shards", "compat", "want"),
    [
        (10, 4, None, [3, 3, 2, 2]),
        (10, 4, "2017", [3, 3, 2, 2]),
        (404, 10, None, [41] * 4 + [40] * 6),
        (404, 10, "2017", [41] * 4 + [40] * 6),
        (2500, 10, None, [250] * 10),
        (2500, 10, "2017", [251] + [250] * 8 + [249]),
        (2, 4, None, [1, 1, 0, 0]),
        (0, 3, None, [0, 0, 0]),
    ],
)
def test_shards_are_dealt_out(
    tmp_path: Path, count: int, num_shards: int, compat: str | None, want: list[int]
) -> None:
    paths = convert(str(tmp_path / "new"), reader(count), num_shards, "uci", compat=compat)
    assert sizes(paths) == want
    assert sorted(x for shard in shards(paths) for x in shard) == list(range(count))
    names = [f"uci-{n:05d}-of-{num_shards - 1:05d}" for n in range(num_shards)]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names


def test_a_seed_makes_the_order_the_same_again(tmp_path: Path) -> None:
    def once(name: str, **more: Any) -> list[list[Any]]:
        return shards(convert(str(tmp_path / name), reader(50), 3, **more))

    assert once("a", seed=7) == once("b", seed=7) != once("c", seed=8)
    assert once("d", shuffle=False) == [list(range(n, 50, 3)) for n in range(3)]


@pytest.mark.parametrize(
    ("count", "compat", "want"),
    [
        (5, None, [4, 1]), (9, None, [4, 4, 1]), (10, None, [4, 4, 2]), (0, None, []),
        (5, "2017", [5, 0]), (9, "2017", [5, 4, 0]), (10, "2017", [5, 4, 1]), (0, "2017", [0]),
    ],
)  # fmt: skip
def test_files_of_so_many_lines(
    tmp_path: Path, count: int, compat: str | None, want: list[int]
) -> None:
    paths = convert(str(tmp_path), reader(count), line_count=4, name_prefix="a", compat=compat)
    assert sizes(paths) == want
    assert [Path(path).name for path in paths] == [f"a-{n:05d}" for n in range(len(want))]
    if compat is None:
        assert [x for shard in shards(paths) for x in shard] == list(range(count))


def test_a_reader_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[int]:
        yield from range(5000)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        convert(str(tmp_path), broken, 3, "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"num_shards": 2, "line_count": 2}, {"num_shards": 0}, {"line_count": 0},
        {"num_shards": 1, "max_lines_to_shuffle": 0}, {"num_shards": 1, "compat": "2016"},
    ],
)  # fmt: skip
def test_a_wrong_call_of_convert(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"convert needs|at least 1|compat"):
        convert(str(tmp_path / "a"), reader(1), **wrong)
    assert not (tmp_path / "a").exists()


SPLITS = [
    (0, 4, [], []), (4, 4, [4], [4]), (5, 4, [4, 1], [5]), (8, 4, [4, 4], [5, 3]),
    (9, 4, [4, 4, 1], [5, 4]), (10, 4, [4, 4, 2], [5, 4, 1]), (13, 4, [4, 4, 4, 1], [5, 4, 4]),
    (3, 1, [1, 1, 1], [2, 1]), (404, 500, [404], [404]),
    (2000, 500, [500] * 4, [501, 500, 500, 499]),
]  # fmt: skip


@pytest.mark.parametrize(("count", "lines", "now", "then"), SPLITS)
def test_split(tmp_path: Path, count: int, lines: int, now: list[int], then: list[int]) -> None:
    for compat, want in ((None, now), ("2017", then)):
        (tmp_path / str(compat)).mkdir()
        suffix = str(tmp_path / str(compat) / "train-%05d.pickle")
        paths = split(reader(count), lines, suffix, compat=compat)
        lists = [pickle.loads(Path(path).read_bytes()) for path in paths]
        assert [len(one) for one in lists] == want
        assert [x for one in lists for x in one] == list(range(count))


def test_split_calls_its_dumper_by_position(tmp_path: Path) -> None:
    paths = split(reader(3), line_count=2, suffix=str(tmp_path / "%d"), dumper=marshal.dump)
    assert [marshal.loads(Path(path).read_bytes()) for path in paths] == [[0, 1], [2]]
    with pytest.raises(TypeError, match="callable"):
        split(reader(0), 2, dumper=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        split(reader(1), 2, str(tmp_path / "no number"))
    with pytest.raises(FileNotFoundError):
        split(reader(1), 2, str(tmp_path / "missing" / "%d"))
    with pytest.raises(ValueError, match="line_count=0"):
        split(reader(1), 0)


@pytest.fixture
def files(tmp_path: Path) -> str:
    split(reader(10), 2, str(tmp_path / "train-%05d.pickle"))
    return str(tmp_path / "train-*.pickle")


def test_files_are_dealt_to_trainers(files: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(cluster_files_reader(files, trainer_count=2, trainer_id=0)()) == [0, 1, 4, 5, 8, 9]
    assert list(cluster_files_reader(files, 2, 1)()) == [2, 3, 6, 7]
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 5
    assert shown[0] == f"append file: {files.replace('*', '00000')}"
    assert list(cluster_files_reader(files, 3, train_id=2, loader=safe_load)()) == [4, 5]
    assert list(cluster_files_reader(files, 7, 6)()) == []


@pytest.mark.parametrize(("count", "number"), [(2, 2), (2, -1), (1, 5)])
def test_a_trainer_that_does_not_exist_has_nothing(files: str, count: int, number: int) -> None:
    assert list(cluster_files_reader(files, count, number)()) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_pattern_that_matches_nothing_is_an_error(files: str, number: int) -> None:
    """A mistyped pattern would otherwise train on nothing, and end as a success."""
    reader = cluster_files_reader(files + "nothing", 2, number)
    with pytest.raises(FileNotFoundError, match=r"no file matches '.*nothing'"):
        next(reader())


def test_cluster_files_reader_is_lazy(files: str) -> None:
    cluster_files_reader(files + "nothing", 1, 0)
    with pytest.raises(TypeError, match="callable"):
        list(cluster_files_reader(files, 1, 0, loader=5)())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="trainer_count=0"):
        list(cluster_files_reader(files, 0, 0)())
    with pytest.raises(ValueError, match="train_id=1"):
        cluster_files_reader(files, 2, 0, train_id=1)


@pytest.mark.parametrize("generation", ["2017", "2020", "both"])
def test_the_environment_says_which_trainer_this_is(
    files: str, generation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert this_trainer({}) == this_trainer({"PADDLE_TRAINER_ID": ""})
    if generation != "2020":
        monkeypatch.setenv("PADDLE_INIT_TRAINER_ID", "1")
        monkeypatch.setenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "2")
    if generation != "2017":
        monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
        monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    assert list(cluster_files_reader(files)()) == [2, 3, 6, 7]
    convert(str(tmp_path / "r"), reader(100), 1, "a", shuffle=False, max_chunk_bytes=50)
    path = str(tmp_path / "r" / "a*")
    mine = list(samples(path))
    others = list(samples(path, trainer_id=0))
    assert others + mine == list(range(100))
    assert abs(len(mine) - len(others)) < 20
    assert len(list(records(path, trainer_count=1, trainer_id=0))) == 100


@pytest.mark.parametrize(
    "environ",
    [{"PADDLE_TRAINER_ID": "1", "PADDLE_INIT_TRAINER_ID": "2"}, {"PADDLE_TRAINER_ID": "one"}],
)
def test_an_environment_that_makes_no_sense_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID"):
        this_trainer(environ)


PLAIN = [
    1,
    2.5,
    "文",
    b"\xff\x00",
    b"",
    None,
    True,
    (1, [2]),
    {"a": {3}},
    frozenset([4]),
    1j,
    2**70,
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_loaded_safely(protocol: int) -> None:
    assert pickles.safe_loads(pickle.dumps(PLAIN, protocol)) == PLAIN
    assert pickles.loads(pickle.dumps(PLAIN, protocol)) == PLAIN


class _Bomb:
    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return eval, ("1/0",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [_Bomb(), Path("a"), len, bytearray(3)])
def test_anything_else_is_refused(protocol: int, value: object) -> None:
    data = pickle.dumps(value, protocol)
    if protocol == 5 and isinstance(value, bytearray):
        assert pickles.safe_loads(data) == value  # an opcode of its own, no call
        return
    with pytest.raises(pickles.UnsafePickle):
        pickles.safe_loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"Ppersistent\n.",
        b"cbuiltins\nbytes\n(I1000000000\ntR.",
    ],
)
def test_the_allowed_calls_do_no_more_than_they_should(data: bytes) -> None:
    with pytest.raises((pickles.UnsafePickle, TypeError)):
        pickles.safe_loads(data)


def test_pickles_of_python_2_are_read() -> None:
    assert pickles.loads(b"(S'\\xe9'\nI1\nt.") == ("é", 1)
    assert pickles.safe_loads(b"(S'\\xe9'\nI1\nt.") == ("é", 1)
