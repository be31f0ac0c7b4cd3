"""Scanning real directories: rows, links, what is left out."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.download.staging import staging_dir
from paddlecloud.client.file_names import check_name, shown
from paddlecloud.client.scan import walk as scan_walk
from paddlecloud.client.scan.walk import scan
from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError
from paddlecloud.model.files.snapshot import Entry, EntryKind, snapshot_of
from tests.unit.client.trees import NOW, as_snapshot, rows, sha256, source_root, tree


def refusal(directory: Path | str) -> PaddleCloudError:
    with pytest.raises(PaddleCloudError) as caught:
        scan(str(directory), now=NOW)
    error = caught.value
    for lang in LANGUAGES:
        assert "{" not in error.text(lang), error.text(lang)
        assert not error.text(lang).startswith(error.code)
    return error


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
    assert (found.bytes, found.directory) == (10, tmp_path.name)
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
    _, (code, values) = found.notes
    want = ".git/, .paddlecloud/, env/ and 2 more [default]"
    assert (code, values) == ("files_skipped", {"paths": want})
    assert render(code, values, "en").endswith(want)


def test_what_is_found_is_told(tmp_path: Path) -> None:
    tree(tmp_path, {f"f{n}": b"x" * n for n in range(9)})
    tree(tmp_path, {"big": b"x" * 2048, "empty": None})
    [(code, values)] = scan(str(tmp_path), now=NOW).notes
    largest = "big (2 KiB), f8 (8 B), f7 (7 B), f6 (6 B), f5 (5 B)"
    assert (code, values) == ("files_found", {"count": 10, "size": "2 KiB", "largest": largest})
    assert largest in render(code, values, "zh")


@pytest.mark.parametrize(
    "left_out",
    [
        *(".hg/x", ".svn/x", "a/.mypy_cache/x", ".pytest_cache/x", ".ruff_cache/x", ".tox/x"),
        *("env/conda-meta/history", "target/CACHEDIR.TAG", "deep/er/venv/pyvenv.cfg", ".nox/x"),
        *(".ipynb_checkpoints/x", ".git", "sub/.git", "a/.output.paddlecloud-part/files/x"),
    ],
)
def test_environments_and_caches_are_left_out(tmp_path: Path, left_out: str) -> None:
    tree(tmp_path, {left_out: b"x", "kept": b"x"})
    found = scan(str(tmp_path), now=NOW)
    assert "kept" in rows(found)
    assert left_out not in rows(found)
    assert left_out.partition("/")[0] in str(found.notes[1][1]["paths"])


def test_a_download_that_was_cut_is_left_out(tmp_path: Path) -> None:
    """By the name that it has where downloads land; a rule brings it back."""
    for final in ("output", ".hidden", "n" * 250):
        (Path(staging_dir(str(tmp_path / final))) / "files").mkdir(parents=True)
    tree(
        tmp_path,
        {".paddlecloud-part": b"", "x.paddlecloud-part/f": b"", ".a.paddlecloud-part": b""},
    )
    kept = [
        ".a.paddlecloud-part",
        ".paddlecloud-part",
        "x.paddlecloud-part",
        "x.paddlecloud-part/f",
    ]
    assert list(rows(scan(str(tmp_path), now=NOW))) == kept
    (tmp_path / ".gitignore").write_text("!.output.paddlecloud-part/\n")
    assert ".output.paddlecloud-part/files" in rows(scan(str(tmp_path), now=NOW))


KEY = b"0123456789abcdef" * 4
PAIR = b'{"user_id": "me", "ak": "a", "sk": "s"}'


@pytest.mark.parametrize(
    ("left_out", "files"),
    [
        (
            "bin/paddlecloud/conf/client.conf",
            {"bin/paddlecloud/conf/client.conf": b"[main]\nsk = a"},
        ),
        ("client.conf", {"client.conf": b"\xef\xbb\xbf[main]\r\nAK: 1"}),
        ("old/", {"old/server/server.key": KEY, "old/server/lock": b"", "old/store/x": b""}),
        ("old/", {"old/server/credentials.json": PAIR, "old/server/server.key": b""}),
        ("a/worker/", {"a/worker/agent/agent.json": PAIR, "a/worker/agent/lock": b""}),
        ("server/", {"server/server.key": KEY, "server/lock": b""}),
    ],
)
def test_secret_keys_of_ours_are_left_out_and_told(
    tmp_path: Path, left_out: str, files: dict[str, bytes]
) -> None:
    tree(tmp_path, {**files, "d/__pycache__/x": b"", "kept": b"x"})
    found = scan(str(tmp_path), now=NOW)
    paths = set(rows(found))
    assert "kept" in paths
    assert not any(path.startswith(left_out) for path in paths)
    assert f"{left_out} [default: keys]" in str(found.notes[1][1]["paths"])


def test_a_home_by_another_name_is_left_out(tmp_path: Path) -> None:
    tree(tmp_path, {"job/cloud/x": b"", "job/kept": b""})
    (tmp_path / "link").symlink_to(tmp_path / "job" / "cloud")
    found = scan(str(tmp_path / "job"), now=NOW, home=str(tmp_path / "link"))
    assert list(rows(found)) == ["kept"]


@pytest.mark.parametrize("directory", ["cloud", "cloud/server"])
def test_keys_themselves_are_refused(tmp_path: Path, directory: str) -> None:
    tree(tmp_path, {"cloud/server/server.key": KEY, "cloud/server/lock": b""})
    with pytest.raises(Invalid) as error:
        scan(str(tmp_path / directory), now=NOW, home=str(tmp_path / "cloud"))
    assert error.value.code == "files_hold_keys"


def test_what_only_looks_like_keys_is_submitted(tmp_path: Path) -> None:
    plain: dict[str, bytes | None] = {
        "a/client.conf": b"[main]\nsk =\n# ak = 1\n[openapi]\nhost = x",
        "b/client.conf": b"[task]\nmask = 1",
        "web/server/server.key": b"k",
        "google/credentials.json": b"{}",
        "tls/credentials.json": b'{"client_id": "x"}',
        "tls/server.key": b"-----BEGIN PRIVATE KEY-----\nab\n-----END PRIVATE KEY-----\n",
        "tls/lock": b"",
        "deploy/server/agent.json": b"{}",
        "deploy/server/lock": b"",
        "sub/lock": b"",
    }
    tree(tmp_path, plain)
    os.mkfifo(tmp_path / "client.conf")
    found = scan(str(tmp_path), now=NOW)
    assert set(plain) <= set(rows(found))
    assert found.notes[1:] == [("files_skipped", {"paths": "client.conf [default]"})]


def test_the_directory_itself_may_be_an_environment(tmp_path: Path) -> None:
    tree(tmp_path, {"pyvenv.cfg": b"", "run.sh": b"x"})
    assert list(rows(scan(str(tmp_path), now=NOW))) == ["pyvenv.cfg", "run.sh"]


def test_what_changed_since_is_known(tmp_path: Path) -> None:
    tree(tmp_path, {"a": b"1", "b": b"2", "d/c": b"3"})
    found = scan(str(tmp_path), now=NOW)
    assert found.changed() == []
    (tmp_path / "a").write_bytes(b"!")
    (tmp_path / "d" / "c").unlink()
    assert sorted(found.changed()) == ["a", "d/c"]


def test_a_long_list_of_what_is_left_out_is_cut(tmp_path: Path) -> None:
    for n in range(8):
        tree(tmp_path, {f"d{n}/__pycache__/x": b""})
    _, (_, values) = scan(str(tmp_path), now=NOW).notes
    assert str(values["paths"]).endswith("d2/__pycache__/ and 5 more [default]")


def test_a_socket_is_left_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        place = os.open(tmp_path, os.O_RDONLY)
        try:  # a short name, since an address holds about a hundred bytes
            listener.bind(f"/dev/fd/{place}/s" if sys.platform == "linux" else str(tmp_path / "s"))
        finally:
            os.close(place)
    found = scan(str(tmp_path), now=NOW)
    assert (found.entries, found.notes[1:]) == ([], [("files_skipped", {"paths": "s [default]"})])


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


@pytest.mark.parametrize(("path", "target"), [("link", "."), ("link", "{root}"), ("d/link", "..")])
def test_a_link_to_the_directory_itself_is_named_as_such(
    tmp_path: Path, path: str, target: str
) -> None:
    root = tree(tmp_path / "job", {"f": b"1", "d/e": None})
    (root / path).symlink_to(target.format(root=root))
    error = refusal(root)
    assert (error.code, error.params["path"]) == ("files_link_whole", path)
    (root / ".paddlecloudignore").write_text("link\n")
    assert path not in rows(scan(str(root), now=NOW))


def test_a_name_is_shown_with_the_bytes_that_are_no_text() -> None:
    assert shown(os.fsdecode("数据".encode("gbk"))) == r"\xca\xfd\xbe\xdd"
    assert shown("模型\udcff") == r"模型\xff"
    assert shown("half \ud800") == r"half \ud800"
    assert (len(shown("a" * 200)), shown("a" * 201)) == (200, "a" * 200 + "...")


@pytest.mark.skipif(sys.platform == "win32", reason="names hold no such letters there")
def test_no_name_reaches_a_terminal_that_would_obey_it(tmp_path: Path) -> None:
    tree(tmp_path, {"a\x1b]0;b\x07": b"1", "c\nd": b"2", "e\x1b[2J": b"", ".gitignore": b"e*\n"})
    told = [params for _, params in scan(str(tmp_path), now=NOW).notes]
    assert all(str(value).isprintable() for params in told for value in params.values())
    assert r"c\nd (1 B)" in str(told[0]["largest"])
    assert told[1]["paths"] == r"e\033[2J [.gitignore:1]"
    (tmp_path / "l\n").symlink_to("../f\n")
    with pytest.raises(Invalid) as caught:
        scan(str(tmp_path), now=NOW)
    assert caught.value.text("en").isprintable()


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


@pytest.mark.parametrize(
    "name", [b"gbk\xb0\xa1", b"back\\slash", "数".encode() * 100], ids=["gbk", "back", "long"]
)
def test_a_refused_name_is_explained_in_one_language(tmp_path: Path, name: bytes) -> None:
    told = check_name_of(os.fsdecode(name)).text("zh").partition("”")[2]
    assert not re.search("[a-z]", told)


def check_name_of(name: str) -> Invalid:
    with pytest.raises(Invalid) as caught:
        check_name(name)
    return caught.value


def test_rules_are_told_in_the_order_of_their_lines(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(1, 13)]
    tree(tmp_path, {**dict.fromkeys(names, b""), ".gitignore": "\n".join(names).encode()})
    (_, params) = scan(str(tmp_path), now=NOW).notes[1]
    told = str(params["paths"])
    assert told.startswith("f1 [.gitignore:1], f2 [.gitignore:2], f3")
    assert told.endswith("f10 [.gitignore:10], ... (2 more rules)")


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    tree(tmp_path, {"run.sh": b""})
    assert refusal(tmp_path / "run.sh").code == "files_not_directory"


@pytest.mark.parametrize("name", [b"caf\xe9", b"back\\slash"])
def test_a_name_that_not_every_system_can_hold_is_refused(tmp_path: Path, name: bytes) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):  # noqa: PTH123 - pathlib knows no bytes
        pass
    error = refusal(tmp_path)
    assert (error.code, error.exit_code) == ("files_name", 2)
    str(error).encode()


def test_a_directory_with_such_a_name_itself_is_submitted(tmp_path: Path) -> None:
    root = os.fsdecode(os.fsencode(tmp_path) + "/数据".encode("gbk"))
    tree(Path(root), {"f": b"1"})
    found = scan(root, now=NOW)
    assert (list(rows(found)), found.directory) == (["f"], "????")
    assert scan(str(tree(tmp_path / "模型", {"f": b"1"})), now=NOW).directory == "模型"


def zh_and_en(error: PaddleCloudError) -> str:
    return error.text("en") + error.text("zh")


def test_a_link_to_a_name_that_cannot_be_submitted_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("a\\b")
    error = refusal(tmp_path)
    assert (error.code, error.params["path"]) == ("files_link_name", "l")
    assert ".paddlecloudignore" in zh_and_en(error)


def test_all_that_is_refused_is_told_at_once(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"l{number}").symlink_to("/etc/hosts")
    tree(tmp_path, {"a\\b": b"", "d/x\\y": b""})
    error = refusal(tmp_path)
    assert (error.code, error.params["count"], error.exit_code) == ("files_refused", 9, 2)
    for lang in LANGUAGES:
        first, *lines = error.text(lang).split("\n")
        assert "9" in first and len(lines) == 9
    assert any("链接“l" in line or "文件名“" in line for line in error.text("zh").split("\n"))


@pytest.mark.parametrize(
    ("path", "target", "want"),
    [
        ("outin", "../job/f", "f"),
        ("d/outin", "../../job/d/g", "g"),
        ("d/outin", "../../job/f", "../f"),
        ("outin", "../job/later", "later"),
    ],
)
def test_a_link_may_go_out_and_come_in_again(
    tmp_path: Path, path: str, target: str, want: str
) -> None:
    root = tree(tmp_path / "job", {"f": b"", "d/g": b""})
    (root / path).symlink_to(target)
    assert rows(scan(str(root), now=NOW))[path][4] == want


def test_a_link_to_what_was_left_out_is_told(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": b"data/\n*.bin\n", "data/x": b"", "a.bin": b"", "kept": b""})
    (tmp_path / "l").symlink_to("data/x")
    (tmp_path / "m").symlink_to("a.bin")
    (tmp_path / "good").symlink_to("kept")
    (tmp_path / "never").symlink_to("nothing")
    code, params = scan(str(tmp_path), now=NOW).notes[2]
    assert (code, params) == ("files_link_bare", {"links": "l -> data/x, m -> a.bin"})
    (tmp_path / ".gitignore").write_bytes(b"[lm]\n")
    assert len(scan(str(tmp_path), now=NOW).notes) == 2


def test_the_directory_itself_is_named_when_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", closed)
        error = refusal(tmp_path)
    assert (error.code, error.params["path"]) == ("files_closed", str(tmp_path))
    assert "权限不足" in error.text("zh")


def test_a_directory_that_is_a_link_to_nothing_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to("nowhere")
    error = refusal(tmp_path / "away")
    assert error.code == "files_link_nowhere"
    assert "nowhere" in zh_and_en(error)


def test_another_home_of_ours_is_not_submitted(tmp_path: Path) -> None:
    home = tree(
        tmp_path / "other",
        {"server/server.key": b"0" * 64, "server/lock": b"", "server.toml": b"", "cache/x": b""},
    )
    (home / "server" / "credentials.json").write_text('{"ak": "a", "sk": "s"}')
    assert refusal(home).code == "files_hold_keys"


@pytest.mark.skipif(sys.platform == "win32", reason="names hold no colon there")
def test_what_outputs_may_be_called_may_be_submitted(tmp_path: Path) -> None:
    """Frameworks call a variable b:0, and checkpoints by their variables."""
    found = scan(str(tree(tmp_path, {"b:0": b"1", "c:/x": b"2"})), now=NOW)
    assert list(rows(found)) == ["b:0", "c:", "c:/x"]
    snapshot_of(
        Entry(path=path, kind=EntryKind(kind), size=size, sha256=digest)
        for path, kind, size, digest, _, _ in found.entries
    )


ROOT_READS_EVERYTHING = """
import os, sys
from paddlecloud.client.scan.walk import scan
from paddlecloud.model.errors import Invalid
os.setgid(65534); os.setuid(65534)
try:
    scan(sys.argv[1], now=0.0)
except Invalid as error:
    print(error.code, error.params.get("path", error))
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


def test_all_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    tree(tmp_path, {**{f"s{number:02}": b"x" for number in range(21)}, "closed/file": b"x"})
    blocked = [*sorted(tmp_path.glob("s*")), tmp_path / "closed"]
    (tmp_path / "out").symlink_to("/etc")
    for path in blocked:
        path.chmod(0)
    said = scanned_by_nobody(tmp_path) if os.geteuid() == 0 else f"{refusal(tmp_path)}"
    for path in blocked:
        path.chmod(0o700)
    first, *lines = said.splitlines()
    assert first.endswith("23 entries cannot be submitted:")
    assert len(lines) == 20
    assert sum("cannot read" in line and "ignore rule" in line for line in lines) >= 19


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


@pytest.mark.parametrize("name", ["link", "file"])
def test_what_vanishes_while_it_is_looked_at_is_told_as_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tree(tmp_path, {"file": b"x"})
    (tmp_path / "link").symlink_to("file")
    entries = scan_walk._Walk._entries

    def vanish(walk: Any, above: str) -> Any:
        found = entries(walk, above)
        (tmp_path / name).unlink()
        return found

    monkeypatch.setattr(scan_walk._Walk, "_entries", vanish)
    with pytest.raises(Conflict) as caught:
        scan(str(tmp_path), now=NOW)
    assert (caught.value.code, caught.value.params["path"]) == ("files_changed", name)


def test_importing_stays_cheap() -> None:
    heavy = ["dataclasses", "typing", "pathlib", "subprocess", "http.client", "asyncio", "shutil"]
    modules = "paddlecloud.client.scan.walk, paddlecloud.client.upload.blobs"
    code = f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": source_root()},
    )
    assert done.stdout.strip() == "[]"
