"""Snapshots: identity by content, safe paths, links that stay inside."""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.snapshot import Entry, EntryKind, check_path, resolve_link, snapshot_of

DIGEST = "ab" * 32


def a_file(path: str, **changes: object) -> Entry:
    return replace(Entry(path=path, size=3, sha256=DIGEST), **changes)  # type: ignore[arg-type]


def a_link(path: str, target: str) -> Entry:
    return Entry(path=path, kind=EntryKind.LINK, target=target)


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "a/b",
        "数据/训练.txt",
        "a b/c",
        "...",
        "a..b",
        ".hidden",
        "C",
        "a/" * 100 + "a",
        "x" * 255,
    ],
)
def test_a_plain_path_is_good(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../a",
        "a/../b",
        "a/..",
        ".",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "\\\\host\\share",
        "C:/a",
        "c:a",
        "a\0b",
    ],
)
def test_a_path_that_could_mean_another_place_is_refused(path: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_path(path)
    assert caught.value.code == "path_unsafe"


@pytest.mark.parametrize("path", ["x" * 256, "训" * 86, "a/" * 2048 + "a"])
def test_a_path_that_is_too_long_is_told_so(path: str) -> None:
    with pytest.raises(Invalid, match="too long: a name may have 255 bytes") as caught:
        check_path(path)
    assert caught.value.code == "path_long"


@pytest.mark.parametrize("path", ["b:0", "c:", "C:/a", "fc_0.w:0"])
def test_below_another_path_a_drive_is_a_name(path: str) -> None:
    check_path(path, below=True)
    check_path(f"output/{path}")


@pytest.mark.parametrize("path", ["", "/b:0", "c:/../x", "c:\\x", "..", "a//b", "c:\0"])
def test_below_another_path_all_else_is_refused_as_well(path: str) -> None:
    with pytest.raises(Invalid, match=r"a drive \(C:\)"):
        check_path(path, below=True)


@given(st.text(alphabet="ab./\\:\0 ", max_size=12))
def test_an_accepted_path_stays_below_its_root(path: str) -> None:
    try:
        check_path(path)
    except Invalid:
        return
    joined = posixpath.normpath(posixpath.join("/top/x", path))
    assert joined == "/top/x/" + path


@pytest.mark.parametrize(
    ("path", "target", "want"),
    [
        ("a", "b", "b"),
        ("d/a", "b", "d/b"),
        ("d/a", "../b", "b"),
        ("d/e/a", "../../b/./c", "b/c"),
        ("a", "./b//c/", "b/c"),
        ("d/a", "..//d/b", "d/b"),
    ],
)
def test_a_link_inside_is_resolved(path: str, target: str, want: str) -> None:
    assert resolve_link(path, target) == want


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a", ""),
        ("a", "/etc/passwd"),
        ("a", ".."),
        ("a", "../b"),
        ("d/a", "../../b"),
        ("d/a", "../.."),
        ("d/a", "x/../../../b"),
        ("a", "."),
        ("d/a", ".."),
        ("a", "b\\c"),
        ("a", "b\0"),
    ],
)
def test_a_link_that_leaves_is_refused(path: str, target: str) -> None:
    with pytest.raises(Invalid) as caught:
        snapshot_of([a_link(path, target)])
    assert caught.value.code == "snapshot_link"


def test_an_absolute_link_is_taken_where_it_may_lead_out() -> None:
    found = snapshot_of([a_link("a", "/data/set"), a_link("b", "a")], outside_links=True)
    assert [entry.target for entry in found.entries] == ["/data/set", "a"]


@pytest.mark.parametrize(
    "target", ["/", "//data", "/data/../etc", "/data/", "../b", "/a\\b", "/a\0"]
)
def test_an_absolute_link_has_one_plain_path(target: str) -> None:
    with pytest.raises(Invalid):
        snapshot_of([a_link("a", target)], outside_links=True)


@given(
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "..", ".", ""]), min_size=1, max_size=6),
)
def test_an_accepted_link_never_leads_out(path: list[str], target: list[str]) -> None:
    link, text = "/".join(path), "/".join(target)
    try:
        found = resolve_link(link, text)
    except Invalid:
        return
    check_path(found)
    where = posixpath.join("/top", posixpath.dirname(link), text)
    assert posixpath.normpath(where) == "/top/" + found


def test_the_identity_is_that_of_the_content() -> None:
    entries = [a_file("a"), a_file("b/c", executable=True), a_link("d", "a")]
    one = snapshot_of(entries)
    assert one == snapshot_of(reversed(entries))
    assert one.id.startswith("sha256:")
    assert [entry.path for entry in one.entries] == ["a", "b/c", "d"]


def test_an_identity_once_given_stays() -> None:
    """Stored jobs refer to it: changing the canonical form would orphan them."""
    canonical = f'[["l","link",0,"",0,"run.sh"],["run.sh","file",3,"{DIGEST}",1,""]]'
    got = snapshot_of([a_file("run.sh", executable=True), a_link("l", "run.sh")]).id
    assert got == "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"size": 4},
        {"sha256": "cd" * 32},
        {"executable": True},
    ],
)
def test_every_property_counts(change: dict[str, object]) -> None:
    assert snapshot_of([a_file("a", **change)]).id != snapshot_of([a_file("a")]).id


def test_size_and_digests() -> None:
    folder = Entry(path="d", kind=EntryKind.DIRECTORY)
    snapshot = snapshot_of([folder, a_file("d/a"), a_file("d/b"), a_link("l", "d/a")])
    assert (snapshot.size, snapshot.digests) == (6, {DIGEST: 3})


@pytest.mark.parametrize(
    ("entries", "want"),
    [
        ([a_file("a"), a_file("a")], "snapshot_name_twice"),
        ([a_file("a"), a_file("a/b")], "snapshot_below_file"),
        ([a_link("a", "b"), a_file("a/b/c")], "snapshot_below_file"),
        ([a_file("a", sha256="")], "snapshot_digest"),
        ([a_file("a", sha256="AB" * 32)], "snapshot_digest"),
        ([a_file("a", size=4), a_file("b")], "snapshot_digest"),
        ([a_file(f"{i:04}", size=2**53) for i in range(1100)], "snapshot_digest"),
        ([a_file("../a")], "path_unsafe"),
        ([a_link("../a", "b")], "path_unsafe"),
    ],
)
def test_entries_that_contradict_each_other_are_refused(entries: list[Entry], want: str) -> None:
    with pytest.raises(Invalid) as caught:
        snapshot_of(entries)
    assert caught.value.code == want


def test_an_empty_directory_is_a_snapshot_too() -> None:
    assert snapshot_of([]).entries == ()


@pytest.mark.parametrize("odd", ["a\udcff", "\ud800", "b/\udc80/c"])
def test_a_name_that_is_no_text_is_refused_and_named(odd: str) -> None:
    for entry in (a_file(odd), a_link("link", odd)):
        with pytest.raises(Invalid) as caught:
            snapshot_of([entry])
        assert caught.value.code == "path_encoding"
        assert str(caught.value).encode()
    shown = odd.encode("utf-8", "backslashreplace").decode()
    with pytest.raises(Invalid, match=re.escape(f"the name {shown} is not valid UTF-8")):
        snapshot_of([a_file(odd)])


def test_half_of_a_pair_is_no_path() -> None:
    with pytest.raises(Invalid) as caught:
        check_path("a/\ud800")
    assert caught.value.code == "path_unsafe"
    assert str(caught.value).encode()


def test_the_size_is_that_of_the_files() -> None:
    entries = [a_file("a"), Entry(path="d", kind=EntryKind.DIRECTORY, size=2**60)]
    assert snapshot_of(entries).size == 3
