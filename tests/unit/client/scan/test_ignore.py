"""Ignore files: git itself is asked about the same trees, and has to give the same answer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.client.scan import _ignore
from paddlecloud.client.scan.walk import scan
from paddlecloud.model.errors import Invalid

NOW = 4_000_000_000.0
NAMES = (
    *("a", "b", "foo", "foo.py", "bar.txt", "build", "x.log", "doc", "q#", "c d", "模型", "[z]"),
    *("x.1", "X", "ab", "a-b", "]", "é", "tab\t", "end "),
)
PIECES = (
    *("foo", "*.py", "*.log", "b*", "?", "[ab]", "[!ab]", "[a-f]oo", "doc", "build", "*", "a**b"),
    *("\\#", "q\\#", "c\\ d", "\\[z]", "[[]z]", "foo.*", "*.t?t", "x.lo[a-z]", "**", "q#", "c d"),
    *("模*", "??????", "[!a]*", "[模]*", "é", "tab\t", "a**", "**b", "a**/b"),
)
BRACKETS = (
    *("[[:digit:]]", "[[:alpha:]]", "[![:lower:]]", "[^[:punct:]]", "[x[:digit:]]", "[[:space:]]"),
    *("[[:digit:]-z]", "[[:nothing:]]", "[[:alpha]", "[[:alpha:]", "[[:]", "[[::]]", "[:alpha:]"),
    *("[z-a]", "[a-\\c]", "[\\a-c]", "[a-]", "[-a]", "[--0]", "[a-c-z]", "[]]", "[!]]", "[]-a]"),
    *("[", "[]", "[a", "[!", "[a/b]", "[\\]]", "[\\", "[a-", "[a-\\", "[!a-z]", "[^/]", "[[-x]"),
)


CLASSES = (
    *("alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space"),
    *("upper", "xdigit"),
)


def make_tree(root: Path, chance: random.Random) -> None:
    places = [root]
    for _ in range(chance.randint(4, 10)):
        place = chance.choice(places) / chance.choice(NAMES)
        if not place.exists() and place.parent.is_dir():
            place.mkdir()
            places.append(place)
    for _ in range(chance.randint(8, 25)):
        file = chance.choice(places) / chance.choice(NAMES)
        if not file.exists():
            file.write_bytes(b"x")
    for place in [root, *chance.sample(places, min(2, len(places)))]:
        lines = [a_pattern(chance) for _ in range(chance.randint(1, 6))]
        text = chance.choice(("\n", "\n", "\r\n")).join(lines) + chance.choice(("", "\n", "  \n"))
        mark = chance.choice(("", "", "\ufeff"))
        (place / ".gitignore").write_bytes((mark + text).encode())


def a_pattern(chance: random.Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(
            (
                *("", "# a remark", "   ", "!", "/", "!/", "//", "foo   ", "foo\t", "\\!x"),
                *("end\\ ", "end\\  ", "foo\\\\ ", "foo\\", "foo\\ ", "a\\/b", "**\\/b", "foo//"),
                "a\0b",
            )
        )
    pieces = [a_piece(chance) for _ in range(chance.choice((1, 1, 1, 2, 2, 3)))]
    before = chance.choice(("", "", "", "/", "**/"))
    after = chance.choice(("", "", "", "/", "/", "/**", "/*"))
    return chance.choice(("", "", "!")) + before + "/".join(pieces) + after


def a_piece(chance: random.Random) -> str:
    if chance.random() < 0.3:
        before, after = (chance.choice(("", "", "*", "x.", "a")) for _ in range(2))
        return before + chance.choice(BRACKETS) + after
    return chance.choice(PIECES)


def kept_by_git(root: Path) -> set[str]:
    """Every entry that git would not leave out."""
    paths = [str(path.relative_to(root)) for path in root.rglob("*") if ".git" not in path.parts]
    asked = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths).encode(),
        capture_output=True,
        cwd=root,
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root), "XDG_CONFIG_HOME": ""},
        timeout=30,
        check=False,
    )
    assert asked.returncode in (0, 1), asked.stderr
    return set(paths) - set(asked.stdout.decode().split("\0"))


def make_repository(root: Path) -> None:
    (root / ".git" / "objects").mkdir(parents=True)
    (root / ".git" / "refs").mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "config").write_text("")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(range(50, 800), marks=pytest.mark.slow)], ids=repr
)
def test_git_agrees_on_generated_trees(tmp_path: Path, seeds: range) -> None:
    """All trees lie in one repository, so that git is started once."""
    make_repository(tmp_path)
    ours = set()
    for seed in seeds:
        root = tmp_path / str(seed)
        root.mkdir()
        make_tree(root, random.Random(seed))
        ours |= {f"{seed}/{row[0]}" for row in scan(str(root), now=NOW).entries}
    git = {path for path in kept_by_git(tmp_path) if "/" in path}
    assert len(git) > 10 * len(seeds)
    assert sorted(ours ^ git) == []


def test_git_agrees_on_each_letter_of_each_class(tmp_path: Path) -> None:
    make_repository(tmp_path)
    letters = [chr(code) for code in range(1, 128) if chr(code) not in "/\\:"]
    ours = set()
    for number, name in enumerate(CLASSES):
        root = tmp_path / str(number)
        root.mkdir()
        for letter in letters:
            (root / f"x{letter}").write_bytes(b"x")
        (root / ".gitignore").write_text(f"x[[:{name}:]]\n")
        ours |= {f"{number}/{row[0]}" for row in scan(str(root), now=NOW).entries}
    git = {path for path in kept_by_git(tmp_path) if "/" in path}
    assert len(CLASSES) == 12
    assert sorted(ours ^ git) == []


def kept(root: Path, home: Path | None = None) -> list[str]:
    found = scan(str(root), now=NOW, home=str(home) if home else None)
    return [row[0] for row in found.entries if row[1] == "file"]


def write(root: Path, **contents: str) -> None:
    """Files by name: `a__b` is a/b, `_ignore` is .gitignore, `pycache` is __pycache__."""
    for name, text in contents.items():
        path = root / name.replace("__", "/").replace("_ignore", ".gitignore")
        path = Path(str(path).replace("/pycache/", "/__pycache__/"))
        assert path.is_relative_to(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_our_own_file_comes_before_gits(tmp_path: Path) -> None:
    write(tmp_path, _ignore="a\n", a="", b="", sub__b="", sub___ignore="x\n", sub__x="")
    assert kept(tmp_path) == [".gitignore", "b", "sub/.gitignore", "sub/b"]
    (tmp_path / ".paddlecloudignore").write_text("b\n")
    names = [".gitignore", ".paddlecloudignore", "a", "sub/.gitignore", "sub/x"]
    assert kept(tmp_path) == names


def test_each_entry_is_told_with_its_rule(tmp_path: Path) -> None:
    write(tmp_path, _ignore="# x\n*.log\n!keep.log\nbuild/\n", **{"a.log": "", "keep.log": ""})
    write(tmp_path, build__x="", sub___ignore="*.tmp\n", **{"sub__b.tmp": "", "sub__b.log": ""})
    found = scan(str(tmp_path), now=NOW)
    told = found.notes[1][1]["paths"]
    want = "a.log, sub/b.log [.gitignore:2], build/ [.gitignore:4], sub/b.tmp [sub/.gitignore:1]"
    assert told == want


def test_rules_that_leave_nothing_are_named(tmp_path: Path) -> None:
    write(tmp_path, _ignore="*\n!sub/\n", sub___ignore="*\n", a="", sub__a="", pycache__a="")
    first, *_ = scan(str(tmp_path), now=NOW).notes
    assert first == ("files_none_left", {"rules": ".gitignore, sub/.gitignore"})
    (tmp_path / ".gitignore").write_text("!a\n")
    assert scan(str(tmp_path), now=NOW).notes[0][0] == "files_found"


def test_what_only_our_own_rules_leave_out_is_no_file(tmp_path: Path) -> None:
    write(tmp_path, **{".git__HEAD": ""})
    assert scan(str(tmp_path), now=NOW).notes[0] == ("files_none", {})


def test_a_rule_can_bring_back_a_cache_but_never_git(tmp_path: Path) -> None:
    write(tmp_path, _ignore="!__pycache__/\n!.git\n", **{".git__HEAD": ""})
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("")
    assert kept(tmp_path) == [".gitignore", "__pycache__/a.pyc"]


@pytest.mark.parametrize("lines", ["!client.conf\n!env/\n!s/\n", "*\n!*/\n!*.conf\n!*.py\n"])
def test_no_rule_brings_back_keys_and_environments(tmp_path: Path, lines: str) -> None:
    write(tmp_path, **{"conf__client.conf": "sk = 1", "env__pyvenv.cfg": ""})
    write(tmp_path, **{"s__lock": "", "s__server.key": "0" * 64, "s__x.py": ""})
    write(tmp_path, **{"env__x.py": "", "kept.py": ""})
    write(tmp_path, _ignore=lines)
    assert [path for path in kept(tmp_path) if path != ".gitignore"] == ["kept.py"]


def test_a_link_that_leads_out_may_be_ignored(tmp_path: Path) -> None:
    write(tmp_path, _ignore="data\n")
    (tmp_path / "data").symlink_to("/etc")
    assert kept(tmp_path) == [".gitignore"]


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ((), ".paddlecloudignore"),
        ((".gitignore",), ".gitignore"),
        ((".gitignore", "sub/.gitignore"), "sub/.gitignore"),
        ((".gitignore", ".paddlecloudignore"), ".paddlecloudignore"),
        ((".gitignore", "sub/.paddlecloudignore"), "sub/.paddlecloudignore"),
    ],
)
@pytest.mark.parametrize("target", ["/etc", "..", "../a\\b"], ids=["outside", "whole", "name"])
def test_a_refused_link_is_to_be_named_where_the_rules_are(
    tmp_path: Path, files: tuple[str, ...], want: str, target: str
) -> None:
    """A new file of ours would make git's void, and what that keeps out would be submitted."""
    write(tmp_path, sub__a="")
    for file in files:
        (tmp_path / file).write_text("x\n")
    (tmp_path / "sub" / "data").symlink_to(target)
    with pytest.raises(Invalid, match=r"^the link .* list (it|the link) in ") as caught:
        kept(tmp_path)
    assert str(caught.value).endswith(f" in {want}")


def void_notes(root: Path) -> list[object]:
    notes = scan(str(root), now=NOW).notes
    return [values["paths"] for code, values in notes if code == "files_git_void"]


def test_what_git_would_have_left_out_is_told(tmp_path: Path) -> None:
    write(tmp_path, _ignore=".env\nbuild/\n__pycache__\n*.log\n*.tmp\n", **{".env": ""})
    write(tmp_path, build__x="", pycache__x="", sub__y="", **{"a.log": "", "a.tmp": ""})
    write(tmp_path, sub___ignore="y\n")
    assert void_notes(tmp_path) == []
    (tmp_path / ".paddlecloudignore").write_text("*.log\n!*.tmp\n")
    assert void_notes(tmp_path) == [".env, build, sub/y"]
    (tmp_path / ".paddlecloudignore").write_text(".env\nbuild\nsub\n*.tmp\n*.log\n")
    assert void_notes(tmp_path) == []


def test_a_void_file_of_git_that_holds_no_rules_is_none(tmp_path: Path) -> None:
    write(tmp_path, a="")
    (tmp_path / ".paddlecloudignore").write_text("")
    (tmp_path / ".gitignore").write_bytes(b"a\n" * (_ignore.MAX_BYTES // 2 + 1))
    assert void_notes(tmp_path) == []


def test_our_own_file_counts_in_any_directory_and_all_below_it(tmp_path: Path) -> None:
    """Tools write a .gitignore beside data that a job is to have: one file of ours undoes all."""
    write(tmp_path, _ignore="*.log\n", x="", a__x="", a__b__x="", **{"a__x.log": ""})
    write(tmp_path, a___ignore="x\n", a__b___ignore="x\n", c___ignore="x\n", c__x="", c__y="")
    assert [path for path in kept(tmp_path) if "ignore" not in path] == ["c/y", "x"]
    (tmp_path / "a" / ".paddlecloudignore").write_text("")
    kept_now = kept(tmp_path)
    assert {"a/x", "a/b/x"} <= set(kept_now)
    assert not {"c/x", "a/x.log"} & set(kept_now)


def test_a_byte_order_mark_is_no_part_of_the_first_rule(tmp_path: Path) -> None:
    write(tmp_path, _ignore="\ufeffsecret\n", secret="", kept="")
    assert kept(tmp_path) == [".gitignore", "kept"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("place", [".", "sub"])
@pytest.mark.parametrize("name", [".gitignore", ".paddlecloudignore"])
def test_a_pipe_of_that_name_is_left_out_like_any(tmp_path: Path, place: str, name: str) -> None:
    write(tmp_path, sub__a="")
    os.mkfifo(tmp_path / place / name)
    found = scan(str(tmp_path), now=NOW)
    assert [row[0] for row in found.entries] == ["sub", "sub/a"]
    assert found.notes[1][1]["paths"] == str(Path(place) / name) + " [default]"


@pytest.mark.parametrize("name", [".gitignore", ".paddlecloudignore", "sub/.paddlecloudignore"])
def test_rules_behind_a_dangling_link_are_not_taken_for_none(tmp_path: Path, name: str) -> None:
    write(tmp_path, a="", sub__a="")
    (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(Invalid) as caught:
        kept(tmp_path)
    assert (caught.value.code, caught.value.params["path"]) == ("ignore_unreadable", name)
    assert "No such file" in str(caught.value)


def test_a_directory_with_our_name_is_refused_and_one_with_gits_holds_no_rules(
    tmp_path: Path,
) -> None:
    (tmp_path / ".gitignore").mkdir()
    write(tmp_path, a="")
    assert kept(tmp_path) == ["a"]
    (tmp_path / ".paddlecloudignore").mkdir()
    with pytest.raises(Invalid, match=r"\.paddlecloudignore \(Is a directory\)"):
        kept(tmp_path)


def test_rules_are_read_through_a_link(tmp_path: Path) -> None:
    write(tmp_path, rules="secret\n", secret="")
    (tmp_path / ".gitignore").symlink_to("rules")
    assert kept(tmp_path) == ["rules"]


def test_a_huge_ignore_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"a\n" * (_ignore.MAX_BYTES // 2 + 1))
    with pytest.raises(Invalid, match="ignore file only holds patterns"):
        kept(tmp_path)


def test_a_directory_without_such_a_file_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    code = (
        "import sys; from paddlecloud.client.scan.walk import scan; scan(sys.argv[1], now=9e9);"
        "print([m for m in ('pathspec', 'paddlecloud.client.scan._ignore') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
