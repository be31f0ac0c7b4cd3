"""Scanning, packing and downloading against real directories; the server is a function here."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client import files
from paddlecloud.client.files import Fetched, Scan, batches, download, local_name, pack, scan
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError, Retry
from paddlecloud.model.snapshot import Entry, EntryKind, Snapshot, check_path, snapshot_of
from paddlecloud.model.texts import LANGUAGES, render
from paddlecloud.stores.memory import MemoryStore
from paddlecloud.stores.pack import PackReceiver
from tests.contract.disk import small_disk

NOW = 4_000_000_000.0
"""Long after every file of a test was written."""
JOB = "job-0650470e621f3688812ceda2079805f8"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree(root: Path, contents: dict[str, bytes | None]) -> Path:
    """Write files by path; None makes an empty directory."""
    for name, data in contents.items():
        path = root / name
        if data is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (1_000_000_000, 1_000_000_000))  # so that any change has another time
    return root


def rows(found: Scan) -> dict[str, tuple[str, int, str, int, str]]:
    return {row[0]: row[1:] for row in found.entries}


def as_snapshot(found: Scan) -> Snapshot:
    return snapshot_of(
        Entry(path=p, kind=EntryKind(k), size=n, sha256=d, executable=bool(x), target=t)
        for p, k, n, d, x, t in found.entries
    )


def refusal(directory: Path | str) -> PaddleCloudError:
    with pytest.raises(PaddleCloudError) as caught:
        scan(str(directory), now=NOW)
    error = caught.value
    for lang in LANGUAGES:
        assert "{" not in error.text(lang), error.text(lang)
        assert not error.text(lang).startswith(error.code)
    return error


# -- scanning ----------------------------------------------------------------------------------


def test_a_directory_becomes_rows(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {"run.sh": b"echo hi\n", "data/a.txt": b"1", "data/b.txt": b"1", "empty": None},
    )
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "again").symlink_to("data/a.txt")
    found = scan(str(tmp_path), now=NOW)
    one = sha256(b"1")
    assert found.entries == [
        ("again", "link", 0, "", 0, "data/a.txt"),
        ("data", "dir", 0, "", 0, ""),
        ("data/a.txt", "file", 1, one, 0, ""),
        ("data/b.txt", "file", 1, one, 0, ""),
        ("empty", "dir", 0, "", 0, ""),
        ("run.sh", "file", 8, sha256(b"echo hi\n"), 1, ""),
    ]
    assert (found.bytes, found.directory, found.notes) == (10, tmp_path.name, [])
    assert set(found.sources) == {one, sha256(b"echo hi\n")}
    assert Path(found.sources[one][0]).read_bytes() == b"1"


def test_the_id_is_that_of_the_model(tmp_path: Path) -> None:
    tree(tmp_path, {"a-b": b"1", "a/b": b"2", "a/b2/c": b"3", "a.b": b"", "模型/é": b"4"})
    (tmp_path / "a/link").symlink_to("../模型/é")
    found = scan(str(tmp_path), now=NOW)
    snapshot = as_snapshot(found)
    assert found.id == snapshot.id
    assert [row[0] for row in found.entries] == [entry.path for entry in snapshot.entries]
    assert found.bytes == snapshot.size
    assert {digest: source[1] for digest, source in found.sources.items()} == snapshot.digests


def test_an_empty_directory_is_a_snapshot_too(tmp_path: Path) -> None:
    found = scan(str(tmp_path), now=NOW)
    assert (found.entries, found.id) == ([], snapshot_of([]).id)


def test_the_same_files_elsewhere_have_the_same_id(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        tree(tmp_path / name, {"b": b"2", "a/x": b"1"})
        ids.add(scan(f"{tmp_path / name}/", now=NOW).id)
    assert len(ids) == 1


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    tree(tmp_path, {".git/config": b"x", "pkg/__pycache__/a.pyc": b"x", "run.sh": b"x"})
    tree(tmp_path, {"env/pyvenv.cfg": b"", "env/bin/python": b"x"})
    os.mkfifo(tmp_path / "pipe")
    home = tree(tmp_path, {".paddlecloud/server/server.key": b"secret"}) / ".paddlecloud"
    found = scan(str(tmp_path), now=NOW, home=str(home))
    assert list(rows(found)) == ["pkg", "run.sh"]
    [(code, values)] = found.notes
    want = ".git/, .paddlecloud/, env/, pipe, pkg/__pycache__/"
    assert (code, values) == ("files_skipped", {"paths": want})
    assert render(code, values, "en").endswith(want)


def test_a_long_list_of_what_is_left_out_is_cut(tmp_path: Path) -> None:
    for n in range(8):
        tree(tmp_path, {f"d{n}/__pycache__/x": b""})
    [(_, values)] = scan(str(tmp_path), now=NOW).notes
    assert str(values["paths"]).endswith("d4/__pycache__/ (+3)")


def test_a_socket_is_left_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        place = os.open(tmp_path, os.O_RDONLY)
        try:  # a short name, since an address holds about a hundred bytes
            listener.bind(f"/dev/fd/{place}/s" if sys.platform == "linux" else str(tmp_path / "s"))
        finally:
            os.close(place)
    found = scan(str(tmp_path), now=NOW)
    assert (found.entries, found.notes) == ([], [("files_skipped", {"paths": "s"})])


@pytest.mark.parametrize(
    ("path", "target", "want"),
    [
        ("link", "f", "f"),
        ("d/link", "../f", "../f"),
        ("d/link", "./e/../../f", "./e/../../f"),
        ("link", "{root}/d/e", "d/e"),
        ("d/link", "{root}/f", "../f"),
        ("link", "no/such/file", "no/such/file"),
        ("link", "link", "link"),
    ],
)
def test_a_link_inside_is_kept(tmp_path: Path, path: str, target: str, want: str) -> None:
    tree(tmp_path, {"f": b"1", "d/e": None})
    (tmp_path / path).symlink_to(target.format(root=tmp_path))
    found = scan(str(tmp_path), now=NOW)
    assert rows(found)[path] == ("link", 0, "", 0, want)
    assert as_snapshot(found).id == found.id


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("link", "/etc/passwd"),
        ("link", ".."),
        ("link", "../outside"),
        ("d/link", "../../outside"),
        ("link", "."),
        ("link", "{root}/../outside"),
        ("link", "{root}x/f"),
    ],
)
def test_a_link_that_leaves_is_refused(tmp_path: Path, path: str, target: str) -> None:
    root = tree(tmp_path / "job", {"f": b"1", "d/e": None})
    (root / path).symlink_to(target.format(root=root))
    error = refusal(root)
    assert (error.code, error.exit_code) == ("files_link_outside", 2)
    assert error.params["path"] == path


def test_a_link_that_leaves_through_another_is_refused(tmp_path: Path) -> None:
    """By its letters `far` stays inside; the file system would go elsewhere."""
    root = tree(tmp_path / "job", {"p/q/f": b"1", "top/f": b"1"})
    (root / "p/q/d").symlink_to("../../top")
    (root / "far").symlink_to("p/q/d/../../outside")
    assert refusal(root).params["path"] == "far"


def test_a_tree_reached_through_a_link_is_scanned(tmp_path: Path) -> None:
    root = tree(tmp_path / "real", {"f": b"1"})
    (root / "in").symlink_to("f")
    (tmp_path / "way").symlink_to(root)
    found = scan(str(tmp_path / "way"), now=NOW)
    assert (list(rows(found)), found.directory) == (["f", "in"], "way")


def test_no_such_directory(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nothing")
    assert (error.code, error.exit_code) == ("files_missing", 2)
    assert str(tmp_path / "nothing") in str(error)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    tree(tmp_path, {"run.sh": b""})
    assert refusal(tmp_path / "run.sh").code == "files_not_directory"


@pytest.mark.parametrize("name", [b"caf\xe9", b"back\\slash", b"c:"])
def test_a_name_that_not_every_system_can_hold_is_refused(tmp_path: Path, name: bytes) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):  # noqa: PTH123 - pathlib knows no bytes
        pass
    error = refusal(tmp_path)
    assert (error.code, error.exit_code) == ("files_name", 2)
    str(error).encode()


ROOT_READS_EVERYTHING = """
import os, sys
from paddlecloud.client.files import scan
from paddlecloud.model.errors import Invalid
os.setgid(65534); os.setuid(65534)
try:
    scan(sys.argv[1], now=0.0)
except Invalid as error:
    print(error.code, error.params["path"])
"""


@pytest.mark.parametrize("blocked", ["secret", "closed"])
def test_what_cannot_be_read_is_named(tmp_path: Path, blocked: str) -> None:
    tree(tmp_path, {"secret": b"x", "closed/file": b"x"})
    (tmp_path / blocked).chmod(0)
    if os.geteuid() != 0:
        error = refusal(tmp_path)
        said = f"{error.code} {error.params['path']}"
    else:
        said = scanned_by_nobody(tmp_path)
    (tmp_path / blocked).chmod(0o700)
    assert said.rstrip("/") == f"files_unreadable {blocked}"


def scanned_by_nobody(root: Path) -> str:
    """The scan's error when somebody other than the owner runs it, since root reads everything."""
    for path in (root, *root.parents):
        if path.stat().st_uid == os.geteuid() and path != path.parent:
            path.chmod(path.stat().st_mode | 0o055)
    command = [sys.executable, "-c", ROOT_READS_EVERYTHING, str(root)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": source_root()}
    )
    assert done.stderr == ""
    return done.stdout.strip()


def source_root() -> str:
    return str(Path(files.__file__).parents[2])


# -- the cache of digests ----------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return tree(tmp_path / "job", {f"d{n % 7}/f{n}": b"%d" % n for n in range(250)})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths whose content was read, in order."""
    seen: list[str] = []
    digest = files._digest

    def watched(absolute: str, path: str) -> object:
        seen.append(path)
        return digest(absolute, path)

    monkeypatch.setattr(files, "_digest", watched)
    return seen


def test_an_unchanged_file_is_not_read_again(many: Path, home: Path, hashed: list[str]) -> None:
    first = scan(str(many), now=NOW, home=str(home))
    assert len(hashed) == 250
    hashed.clear()
    second = scan(str(many), now=NOW, home=str(home))
    assert (second.id, second.sources, hashed) == (first.id, first.sources, [])
    (many / "d0/f0").write_bytes(b"!")
    third = scan(str(many), now=NOW, home=str(home))
    assert hashed == ["d0/f0"]
    assert rows(third)["d0/f0"][2] == sha256(b"!")
    assert as_snapshot(third).id == third.id


def test_a_change_that_hides_its_time_is_seen(many: Path, home: Path) -> None:
    scan(str(many), now=NOW, home=str(home))
    path = many / "d0/f0"
    before = path.stat()
    path.write_bytes(b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rows(scan(str(many), now=NOW, home=str(home)))["d0/f0"][2] == sha256(b"!")


def test_a_fresh_file_is_not_trusted(many: Path, home: Path, hashed: list[str]) -> None:
    oldest = min(path.stat().st_ctime for path in many.rglob("f*"))
    for _ in range(2):
        scan(str(many), now=oldest + 1, home=str(home))
    assert len(hashed) == 500


@pytest.mark.parametrize(
    "damage", [b"", b"nonsense\n1 2", b"\xff\xfe", b"paddlecloud-files\t1\nx y"]
)
def test_a_damaged_cache_is_as_good_as_none(many: Path, home: Path, damage: bytes) -> None:
    want = scan(str(many), now=NOW, home=str(home)).id
    [cache] = (home / "cache/files").iterdir()
    cache.write_bytes(damage)
    assert scan(str(many), now=NOW, home=str(home)).id == want


def test_the_cache_is_the_owners_alone_and_optional(many: Path, home: Path, tmp_path: Path) -> None:
    want = scan(str(many), now=NOW, home=str(home)).id
    [cache] = (home / "cache/files").iterdir()
    assert cache.stat().st_mode & 0o777 == 0o600
    blocked = tree(tmp_path, {"blocked": b"a file where a directory should be"}) / "blocked"
    assert scan(str(many), now=NOW, home=str(blocked)).id == want


def test_a_small_directory_needs_no_cache(tmp_path: Path, home: Path) -> None:
    scan(str(tree(tmp_path / "job", {"f": b"1"})), now=NOW, home=str(home))
    assert not home.exists()


# -- packing -----------------------------------------------------------------------------------


def received(stream: bytes) -> tuple[MemoryStore, int]:
    store = MemoryStore()
    receiver = PackReceiver(lambda digest, _size: store.open_write(digest))
    receiver.feed(stream)
    return store, receiver.finish()


def test_a_pack_carries_what_is_missing(tmp_path: Path) -> None:
    big = os.urandom(3_000_001)
    found = scan(str(tree(tmp_path, {"a": b"1", "b": b"22", "c": b"", "big": big})), now=NOW)
    missing = [sha256(b"22"), sha256(b""), sha256(big)]
    stream, length = pack(found.sources, missing)
    chunks = list(stream)
    assert max(map(len, chunks)) == files.BLOCK
    assert min(map(len, chunks)) > 0
    whole = b"".join(chunks)
    assert len(whole) == length == 3 * 40 + 2 + 0 + 3_000_001
    assert b"".join(stream) == whole
    assert stream.sha256() == sha256(whole)
    store, count = received(whole)
    assert count == 3
    assert {s.path for s in store.list()} == set(missing)
    assert b"".join(store.read(sha256(big))) == big


def test_an_empty_pack(tmp_path: Path) -> None:
    stream, length = pack({}, [])
    assert (list(stream), length) == ([], 0)


@pytest.mark.parametrize("new", [b"longer than before", b"2", b"", b"22222"])
def test_a_file_that_changed_since_is_named(tmp_path: Path, new: bytes) -> None:
    found = scan(str(tree(tmp_path, {"changing": b"11111", "other": b"x"})), now=NOW)
    (tmp_path / "changing").write_bytes(new)
    stream, _ = pack(found.sources, list(found.sources))
    with pytest.raises(Conflict) as caught:
        list(stream)
    assert caught.value.code == "files_changed"
    assert str(caught.value.params["path"]).endswith("/changing")


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1"})), now=NOW)
    (tmp_path / "f").unlink()
    with pytest.raises(Conflict, match="/f was changed"):
        list(pack(found.sources, list(found.sources))[0])


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1" * (3 * files.BLOCK)})), now=NOW)
    stream = iter(pack(found.sources, list(found.sources))[0])
    next(stream)
    with (tmp_path / "f").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"2")
    with pytest.raises(Conflict):
        list(stream)


def test_a_touch_is_no_change(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1"})), now=NOW)
    os.utime(tmp_path / "f", (1, 1))
    assert b"".join(pack(found.sources, list(found.sources))[0]).endswith(b"1")


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200))
def test_batches_hold_everything_once(sizes: list[int], limit: int) -> None:
    sources = {str(n): ("", size, "") for n, size in enumerate(sizes)}
    groups = list(batches(sources, sources, limit))
    assert [digest for group in groups for digest in group] == list(sources)
    for group in groups:
        assert len(group) == 1 or sum(40 + sources[d][1] for d in group) <= limit


# -- downloading -------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def from_dict(stored: dict[str, bytes]) -> Callable[[str], Fetched]:
    def fetch(path: str) -> Fetched:
        data = stored[path]
        halves = [data[: len(data) // 2], data[len(data) // 2 :]]
        return Fetched(halves, len(data), sha256(data))

    return fetch


def below(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


STORED = {
    f"output/{JOB}/log/trainer-0.log": b"hello\n",
    f"output/{JOB}/rank-0/0/@LR_DECAY_COUNTER@": b"\0" * 32,
    "run.sh": b"echo hello",
}
LISTED = [f"output/{JOB}/", *STORED]


@pytest.mark.parametrize("download_dir", ["output", "result", "a/b/result", "./result/"])
def test_a_download_does_not_double_the_word_output(here: Path, download_dir: str) -> None:
    heard: list[tuple[str, int]] = []
    total = download(
        from_dict(STORED),
        LISTED,
        download_dir,
        progress=lambda path, size: heard.append((path, size)),
    )
    assert total == sum(map(len, STORED.values())) == sum(size for _, size in heard)
    assert below(here / download_dir) == {
        f"{JOB}/log/trainer-0.log": b"hello\n",
        f"{JOB}/rank-0/0/@LR_DECAY_COUNTER@": b"\0" * 32,
        "run.sh": b"echo hello",
    }
    assert {path.name for path in here.iterdir()} <= {"output", "result", "a"}


def test_the_default_is_what_the_documents_show(here: Path) -> None:
    download(from_dict(STORED), [f"output/{JOB}/log/trainer-0.log"])
    assert (here / f"output/{JOB}/log/trainer-0.log").read_bytes() == b"hello\n"


def test_nothing_to_download_is_an_empty_directory(here: Path) -> None:
    assert download(from_dict({}), [f"output/{JOB}/"], "result") == 0
    assert [path.name for path in (here / "result").iterdir()] == [JOB]


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_an_existing_directory_is_not_touched(here: Path, kind: str) -> None:
    target = here / "result"
    if kind == "directory":
        target.mkdir()
    elif kind == "file":
        target.write_bytes(b"mine")
    else:
        target.symlink_to("nowhere")
    with pytest.raises(Invalid) as caught:
        download(interrupted, LISTED, "result")
    assert caught.value.code == "download_dir_exists"
    assert "--download_dir" in str(caught.value)
    assert [path.name for path in here.iterdir()] == ["result"]


def short(path: str) -> Fetched:
    return Fetched([b"half"], 8)


def damaged(path: str) -> Fetched:
    return Fetched([b"bad"], 3, sha256(b"good"))


def broken(path: str) -> Fetched:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionResetError("gone")

    return Fetched(chunks(), 8)


def interrupted(path: str) -> Fetched:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("fetch", "error"),
    [
        (short, Retry),
        (damaged, Retry),
        (broken, ConnectionResetError),
        (interrupted, KeyboardInterrupt),
    ],
)
def test_a_half_download_leaves_nothing(
    here: Path, fetch: Callable[[str], Fetched], error: type[BaseException]
) -> None:
    with pytest.raises(error):
        download(fetch, ["a", "b/c"], "result")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        "output/../../x",
        f"output/{JOB}/../../x",
        "a//b",
        "a/./b",
        "",
        "/",
        "a\\b",
        "c:/x",
        "a\0b",
        "x" * 300,
    ],
)
def test_a_hostile_path_is_refused_before_anything_is_fetched(here: Path, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        download(interrupted, ["good", path], "result")
    assert caught.value.code == "files_name"
    assert list(here.iterdir()) == []


def test_a_name_twice_is_refused(here: Path) -> None:
    with pytest.raises(Conflict) as caught:
        download(from_dict({"a": b"1"}), ["a", "a"], "result")
    assert caught.value.code == "download_name_twice"
    assert list(here.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(here: Path) -> None:
    (here / "file").write_bytes(b"")
    with pytest.raises(Invalid) as caught:
        download(from_dict(STORED), LISTED, "file/result")
    assert caught.value.code == "download_failed"
    assert "file/result" in str(caught.value)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="1m") as place:
        with pytest.raises(Conflict) as caught:
            download(
                lambda path: Fetched([b"x" * 500_000] * 4, 2_000_000),
                ["model"],
                str(place / "result"),
            )
        assert caught.value.code == "download_full"
        assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (f"output/{JOB}/x", f"{JOB}/x"),
        ("output/mine.txt", "output/mine.txt"),
        ("output", "output"),
        ("a/output/job-1", "a/output/job-1"),
        (f"output/{JOB}/", JOB),
    ],
)
def test_local_names(path: str, want: str) -> None:
    assert local_name(path) == want


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("a/time 10:16.txt", "a/time 10%3A16.txt"),
        ("what?/a*b", "what%3F/a%2Ab"),
        ("ends./with ", "ends%2E/with%20"),
        ("nul", "%6Eul"),
        ("COM1.txt", "%43OM1.txt"),
        ("tab\there", "tab%09here"),
        ("100%", "100%25"),
        ("模型", "模型"),
    ],
)
def test_local_names_on_windows(path: str, want: str) -> None:
    assert local_name(path, windows=True) == want


PARTS = st.sampled_from(["", ".", "..", "a", "a\\", "c:", "é", "x" * 255, "x" * 256, "output"])


@given(st.lists(PARTS, min_size=1, max_size=20).map("/".join))
def test_the_rules_for_paths_are_those_of_the_model(path: str) -> None:
    try:
        check_path(path)
    except Invalid:
        assert files._bad_path(path, path.split("/"))
    else:
        assert not files._bad_path(path, path.split("/"))


def test_importing_stays_cheap() -> None:
    heavy = ["dataclasses", "typing", "pathlib", "subprocess", "http.client", "asyncio", "shutil"]
    code = f"import sys, paddlecloud.client.files; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": source_root()},
    )
    assert done.stdout.strip() == "[]"
