"""Links in a submitted directory: by which of its names they lead into it, and what they cost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddlecloud.client.scan.walk import Scan, scan
from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.errors import Invalid
from tests.unit.client.trees import NOW, tree


def targets(found: Scan) -> dict[str, str]:
    return {row[0]: row[5] for row in found.entries if row[1] == "link"}


def lay_out(entries: list[tuple[str, str, int, str, int, str]], copy: Path) -> Path:
    """What a job gets."""
    for path, kind, *_, target in entries:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            (copy / path).symlink_to(target)
        elif kind == "dir":
            (copy / path).mkdir(exist_ok=True)
        else:
            (copy / path).write_text(path)
    return copy


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Path]:
    """A tree by three names: its real one, and two that go through links above it."""
    tree(tmp_path / "nfs" / "u" / "proj", {"f": b"1", "data/g": b"2", "d/e/h": b"3"})
    (tmp_path / "home").symlink_to("nfs")
    (tmp_path / "short").symlink_to("home/u/proj")
    return {
        "real": tmp_path / "nfs" / "u" / "proj",
        "home": tmp_path / "home" / "u" / "proj",
        "short": tmp_path / "short",
    }


@pytest.mark.parametrize("submitted", ["real", "home", "short"])
@pytest.mark.parametrize("named", ["real", "home", "short"])
@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("link", "data"),
        ("d/e/link", "data/g"),
        ("d/link", "d/e/h"),
        ("link", "/data//g"),
        ("l", "no"),
    ],
)
def test_an_absolute_link_leads_into_the_tree_by_any_of_its_names(
    names: dict[str, Path], tmp_path: Path, submitted: str, named: str, path: str, inside: str
) -> None:
    (names["real"] / path).symlink_to(f"{names[named]}/{inside}")
    found = scan(str(names[submitted]), now=NOW)
    copy = lay_out(found.entries, tmp_path / "copy")
    want = os.path.normpath(copy / inside.lstrip("/"))
    assert os.path.realpath(copy / path) == want


def test_a_link_to_a_link_stays_one(names: dict[str, Path]) -> None:
    root = names["home"]
    (root / "current").symlink_to("data")
    (root / "d" / "link").symlink_to(root / "current" / "g")
    (root / "d" / "up").symlink_to(root / "d" / "e" / ".." / ".." / "current")
    want = {"current": "data", "d/link": "../current/g", "d/up": "../data"}
    assert targets(scan(str(root), now=NOW)) == want


@pytest.mark.parametrize("target", ["{real}/", "{short}/", ""])
def test_a_link_that_goes_up_behind_another_leads_to_the_same_in_a_copy(
    names: dict[str, Path], tmp_path: Path, target: str
) -> None:
    """By its letters it stays inside, and by their end; the file system goes out in between."""
    root = tree(names["real"], {"p/q/f": b"1", "top/f": b"1"})
    (root / "p/q/d").symlink_to("../../top")
    (root / "far").symlink_to(target.format(**names) + "p/q/d/../../proj/f")
    assert (root / "far").read_bytes() == b"1"
    copy = lay_out(scan(str(root), now=NOW).entries, tmp_path / "copy")
    assert os.path.realpath(copy / "far") == str(copy / "f")


@pytest.mark.parametrize("submitted", ["real", "home", "short"])
@pytest.mark.parametrize(
    "target",
    [
        *("{home}/../other", "{top}/home/u/other/x", "{short}/../nfs/u/other", "{real}x/f", "/etc"),
        *("{home}/away/x", "{short}/away", "../../../home/u/other/x", "away/x", "d/../away/x"),
        *("{top}/back/../other", "d/e/../../../other", "{top}/round"),
    ],
)
def test_no_name_of_the_tree_leads_out(
    names: dict[str, Path], tmp_path: Path, submitted: str, target: str
) -> None:
    root = tree(names["real"], {".paddlecloudignore": b"away\n"})
    tree(root.parent / "other", {"x": b"secret"})
    (root / "away").symlink_to("../other")
    (tmp_path / "back").symlink_to(root)
    (tmp_path / "round").symlink_to(root / "link")
    (root / "link").symlink_to(target.format(top=tmp_path, **names))
    with pytest.raises(Invalid) as caught:
        scan(str(names[submitted]), now=NOW)
    assert (caught.value.code, caught.value.params["path"]) == ("files_link_outside", "link")


@pytest.mark.parametrize("submitted", ["real", "home", "short"])
@pytest.mark.parametrize(
    "target", ["{real}", "{home}/", "{short}", "{home}/d/..", "{top}/home/u/proj"]
)
def test_the_tree_itself_is_known_by_any_name(
    names: dict[str, Path], tmp_path: Path, submitted: str, target: str
) -> None:
    (names["real"] / "d" / "link").symlink_to(target.format(top=tmp_path, **names))
    with pytest.raises(Invalid) as caught:
        scan(str(names[submitted]), now=NOW)
    assert caught.value.code == "files_link_whole"


def test_the_tree_is_resolved_once_for_all_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "job", {f"data/f{n}": b"" for n in range(50)})
    tree(root, {"links": None})
    for number in range(50):
        (root / "links" / f"l{number}").symlink_to(f"../data/f{number}")
    asked: list[str] = []
    realpath = os.path.realpath

    def counted(path: str) -> str:
        asked.append(path)
        return realpath(path)

    monkeypatch.setattr(os.path, "realpath", counted)
    assert len(targets(scan(str(root), now=NOW))) == 50
    assert len(asked) <= 2


# -- links to what was left out ----------------------------------------------------------------


def bare_links(root: Path, home: Path | None = None) -> dict[str, object]:
    notes = scan(str(root), now=NOW, home=str(home) if home else None).notes
    return {code: values["links"] for code, values in notes if code.startswith("files_link_")}


@pytest.mark.parametrize("rules", ["", "venv/\n", "!venv/\n!venv/**\n"])
def test_a_link_to_what_no_rule_brings_back_is_told_so(tmp_path: Path, rules: str) -> None:
    root = tree(
        tmp_path / "job",
        {
            "venv/pyvenv.cfg": b"",
            "venv/bin/python": b"",
            "cache/CACHEDIR.TAG": b"",
            ".git/config": b"",
            "keys/client.conf": b"[main]\nsk = a",
            "home/x": b"",
            ".gitignore": rules.encode(),
        },
    )
    inside = ("venv/bin/python", "cache", ".git/config", "keys/client.conf", "home/x")
    for number, target in enumerate(inside):
        (root / f"l{number}").symlink_to(target)
    for link in range(5):
        told = bare_links(root, root / "home")
        assert list(told) == ["files_link_never"]
        assert str(told["files_link_never"]).startswith(f"l{link} -> {inside[link]}")
        (root / f"l{link}").unlink()


def test_a_link_to_what_a_rule_could_bring_is_told_apart(tmp_path: Path) -> None:
    tree(tmp_path, {"venv/pyvenv.cfg": b"", "data/x": b"", "a/__pycache__/y": b""})
    tree(tmp_path, {".gitignore": b"data/\n"})
    for name, target in {"e": "venv", "d": "data/x", "c": "a/__pycache__/y"}.items():
        (tmp_path / name).symlink_to(target)
    want = {"files_link_bare": "c -> a/__pycache__/y, d -> data/x", "files_link_never": "e -> venv"}
    assert bare_links(tmp_path) == want
    for lang in LANGUAGES:
        for code, links in want.items():
            assert links in render(code, {"links": links}, lang)


@pytest.mark.parametrize("rule", ["/dirlink", "/mid", "/dirlink\n/mid"])
def test_a_link_by_way_of_one_that_is_left_out_leads_to_its_end(tmp_path: Path, rule: str) -> None:
    top = tree(tmp_path / "job", {"real/x": b"1", ".gitignore": rule.encode()})
    (top / "dirlink").symlink_to("real")
    (top / "mid").symlink_to("dirlink/x")
    (top / "first").symlink_to("dirlink/x")
    (top / "real" / "second").symlink_to("../mid")
    copy = lay_out(scan(str(top), now=NOW).entries, tmp_path / "copy")
    assert (copy / "first").read_text() == "real/x"
    assert (copy / "real" / "second").read_text() == "real/x"


@pytest.mark.parametrize("submitted", ["real", "home", "short"])
@pytest.mark.parametrize(
    ("target", "want"),
    [
        ("{top}/data/set", "{top}/data/set"),
        ("{top}//data/./set/", "{top}/data/set"),
        ("{top}/now", "{top}/now"),
        ("../../../data/set", "{top}/data/set"),
        ("{home}/../../../data", "{top}/data"),
        ("away/set", "{top}/data/set"),
        ("..", "{top}/nfs/u"),
    ],
)
def test_on_the_machine_of_its_submitter_a_job_gets_the_links_that_lead_out(
    names: dict[str, Path], tmp_path: Path, submitted: str, target: str, want: str
) -> None:
    """Also one that is changed later (`now`) leads where its name does."""
    tree(tmp_path / "data", {"set/x": b"large"})
    (tmp_path / "now").symlink_to("data/set")
    root = tree(names["real"], {".paddlecloudignore": b"away\n"})
    (root / "away").symlink_to("../../../data")
    (root / "link").symlink_to(target.format(top=tmp_path, **names))
    found = scan(str(names[submitted]), now=NOW, outside_links=True)
    kept = want.format(top=tmp_path)
    assert targets(found) == {"link": kept}
    assert (Path(kept) / "x").exists() == (root / "link" / "x").exists()
    assert ("files_link_out", {"links": f"link -> {kept}"}) in found.notes


def test_a_link_that_leads_out_to_nothing_is_kept_and_reported(tmp_path: Path) -> None:
    root = tree(tmp_path / "job", {"f": b"1"})
    (root / "link").symlink_to("/no/such/place")
    found = scan(str(root), now=NOW, outside_links=True)
    assert targets(found) == {"link": "/no/such/place"}
    assert ("files_link_gone", {"links": "link -> /no/such/place"}) in found.notes


def test_a_refused_link_names_the_two_ways_out(tmp_path: Path) -> None:
    root = tree(tmp_path / "job", {"f": b"1"})
    (root / "link").symlink_to("/data/set")
    with pytest.raises(Invalid) as caught:
        scan(str(root), now=NOW)
    for lang in LANGUAGES:
        text = render(caught.value.code, caught.value.params, lang)
        assert "--files" in text
        assert "PFS" in text
