"""Every promise of the store plug, against every kind of store that is found in the package."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddlecloud.model.errors import ConfigError, Conflict, Invalid, NotFound
from paddlecloud.stores import Store, create, kinds
from paddlecloud.stores.memory import MemoryStore
from tests.contract.stores.helpers import content, paths

HOSTILE = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "a\0b",
    "c:/x",
    "x" * 256,
    "/".join(["x" * 100] * 50),
    "half a pair \ud800",
    ".tmp/x",
]


def test_what_is_written_is_read(store: Store) -> None:
    when = datetime(2020, 5, 17, 10, 16, 9, tzinfo=UTC)
    written = store.write("a/b/c", [b"one ", b"", b"two"], modified=when)
    assert (written.path, written.size, written.modified) == ("a/b/c", 7, when)
    assert store.stat("a/b/c") == written
    assert content(store, "a/b/c") == b"one two"


def test_a_write_without_a_time_is_dated_now(store: Store) -> None:
    modified = store.write("x", [b"1"]).modified
    assert modified.tzinfo is not None
    assert abs(datetime.now(UTC) - modified) < timedelta(minutes=5)


def test_an_empty_file_exists(store: Store) -> None:
    store.write("empty", [])
    found = store.stat("empty")
    assert found is not None
    assert found.size == 0
    assert content(store, "empty") == b""


def test_a_write_replaces_the_file(store: Store) -> None:
    store.write("x", [b"old and long"])
    store.write("x", [b"new"])
    assert content(store, "x") == b"new"
    assert paths(store) == ["x"]


def test_a_reader_keeps_the_file_it_opened(store: Store) -> None:
    store.write("x", [b"old"])
    reader = store.read("x")
    store.write("x", [b"new"])
    assert b"".join(reader) == b"old"


@pytest.mark.parametrize(
    ("offset", "length", "want"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (8, 100, b"89"),
        (10, None, b""),
        (99, 5, b""),
        (0, 0, b""),
    ],
)
def test_a_part_is_read(store: Store, offset: int, length: int | None, want: bytes) -> None:
    store.write("x", [b"0123456789"])
    with store.read("x", offset, length) as reader:
        assert reader.length == len(want)
        assert reader.stat.size == 10
        assert b"".join(reader) == want


def test_a_large_file_comes_in_pieces(store: Store) -> None:
    data = os.urandom(1_000_003)
    store.write("x", [data[:400_000], data[400_000:]])
    pieces = list(store.read("x"))
    assert len(pieces) > 1
    assert b"".join(pieces) == data


def test_what_is_missing(store: Store) -> None:
    store.write("dir/file", [b"x"])
    for path in ("nothing", "dir", "dir/nothing", "dir/file/below"):
        assert store.stat(path) is None
        with pytest.raises(NotFound, match=path):
            store.read(path)
        store.delete(path)
        assert store.delete_tree("nothing") == 0
    assert paths(store) == ["dir/file"]


def test_a_list_is_sorted_by_whole_path(store: Store) -> None:
    names = ["a/b", "a-b", "a", "b/c/d", "b/c.txt", "b/c/a", "é/ü", "z"]
    names.remove("a")
    for name in names:
        store.write(name, [name.encode()])
    assert paths(store) == sorted(names)
    assert paths(store, "b/") == ["b/c.txt", "b/c/a", "b/c/d"]
    assert paths(store, "b/c") == ["b/c.txt", "b/c/a", "b/c/d"]
    assert paths(store, "b/c/") == ["b/c/a", "b/c/d"]
    assert paths(store, "a") == ["a-b", "a/b"]
    assert paths(store, "nothing/") == []
    assert paths(store, "z/") == []


def test_sizes_of_many(store: Store) -> None:
    want = {f"d{n % 3}/f{n}": n for n in range(10)}
    for path, size in want.items():
        store.write(path, [b"x" * size])
    assert store.sizes([*want, "d0/none", "none/none", "d1"]) == want
    assert store.sizes([]) == {}
    with pytest.raises(Invalid):
        store.sizes(["d0/f0", "d0/.."])


def test_delete(store: Store) -> None:
    store.write("a/b", [b"12"])
    store.write("a/c", [b"345"])
    store.delete("a/b")
    store.delete("a/b")
    assert paths(store) == ["a/c"]


def test_delete_tree_tells_what_it_freed(store: Store) -> None:
    for path in ("j/1", "j/d/2", "jj/3", "f"):
        store.write(path, [b"12345"])
    assert store.delete_tree("j") == 10
    assert store.delete_tree("j") == 0
    assert store.delete_tree("f") == 5
    assert paths(store) == ["jj/3"]
    store.write("j/1", [b"again"])
    assert paths(store, "j/") == ["j/1"]


def test_nothing_shows_before_commit_nor_after_abort(store: Store) -> None:
    sink = store.open_write("x")
    sink.write(b"half")
    assert paths(store) == []
    assert store.stat("x") is None
    sink.abort()
    sink.abort()
    assert paths(store) == []
    done = store.open_write("x")
    done.write(memoryview(b"whole"))
    assert done.commit().size == 5
    done.abort()
    assert content(store, "x") == b"whole"


def test_a_source_that_breaks_leaves_nothing(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        store.write("x", broken())
    assert paths(store) == []


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a", "a/b/c")])
def test_a_name_is_a_file_or_a_directory(store: Store, first: str, second: str) -> None:
    store.write(first, [b"1"])
    with pytest.raises(Conflict) as caught:
        store.write(second, [b"2"])
    assert caught.value.code == "store_path_taken"
    assert paths(store) == [first]
    assert content(store, first) == b"1"


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_is_refused(store: Store, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.stat(path),
        lambda: store.sizes([path]),
        lambda: store.read(path),
        lambda: store.write(path, [b"x"]),
        lambda: store.open_write(path),
        lambda: store.delete(path),
        lambda: store.delete_tree(path),
    ]
    for call in calls:
        with pytest.raises(Invalid) as caught:
            call()
        assert caught.value.code in ("path_unsafe", "path_long")
        str(caught.value.params["path"]).encode()
    assert paths(store) == []


@pytest.mark.parametrize("prefix", ["../", "/etc/", "a/../", "..//", "a\0/b", "\ud800/"])
def test_a_hostile_prefix_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(Invalid):
        list(store.list(prefix))


def test_names_of_any_language_and_shape(store: Store) -> None:
    names = ["张三/模型 1.pt", "a\nb", "-rf", "@LR_DECAY_COUNTER@", "..hidden", "raw \udcff byte"]
    for name in names:
        store.write(name, [name.encode("utf-8", "surrogateescape")])
    assert paths(store) == sorted(names)
    assert content(store, "张三/模型 1.pt") == "张三/模型 1.pt".encode()


def test_many_threads_write_one_path(store: Store) -> None:
    texts = [bytes([65 + n]) * 50_000 for n in range(8)]
    threads = [threading.Thread(target=store.write, args=("x", [text])) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert content(store, "x") in texts
    assert paths(store) == ["x"]


@pytest.mark.parametrize("count", [0, 1, 40])
def test_flush_keeps_everything(store: Store, count: int) -> None:
    for n in range(count):
        store.write(f"d{n % 3}/{n}", [b"x"])
    if count:
        store.delete("d0/0")
    store.flush()
    store.flush()
    assert len(paths(store)) == max(0, count - 1)


def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    for kind in ("floppy", "base", "../x", ""):
        with pytest.raises(ConfigError, match="directory, memory, s3"):
            create(kind, {})
    with pytest.raises(ConfigError, match="root"):
        create("directory", {})


def test_a_store_that_is_installed_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[paddlecloud.stores]\ntheirs = their_store:make\n")
    (tmp_path / "their_store.py").write_text(
        "from paddlecloud.stores.memory import MemoryStore\n"
        "def make(settings):\n"
        "    store = MemoryStore()\n"
        "    store.write(settings['path'], [b'theirs'])\n"
        "    return store\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kinds() == ["directory", "memory", "s3", "theirs"]
    assert content(create("theirs", {"path": "x"}), "x") == b"theirs"


def test_memory_takes_its_time_from_its_clock() -> None:
    when = datetime(2020, 1, 1, tzinfo=UTC)
    assert MemoryStore(clock=lambda: when).write("x", []).modified == when
