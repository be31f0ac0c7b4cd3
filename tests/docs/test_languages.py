"""A page and its Chinese brother stay together: the same blocks, headings and links.

Only the prose differs, and what a command answers. Whether the Chinese says what the English says,
no test can tell: whoever changes one page changes the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.docs.pages import (
    DOCS,
    PAGES,
    blocks,
    chinese_of,
    english_of,
    headings,
    links,
    name_of,
    prose,
)

INDEX = DOCS / "README.md"
GUIDES = [page for page in sorted(DOCS.glob("how-to/*.md")) if page == english_of(page)]
CHINESE = [page for page in PAGES if page == chinese_of(page)]


def differences(page: Path) -> list[str]:
    """What keeps a page and its Chinese brother apart; they need not be there."""
    english, chinese = english_of(page), chinese_of(page)
    missing = [f"{side.name} is missing" for side in (english, chinese) if not side.is_file()]
    if missing:
        return missing
    texts = english.read_text(encoding="utf-8"), chinese.read_text(encoding="utf-8")
    return [*_blocks(*texts), *_headings(*texts), *_links(*texts), *_tops(english, chinese)]


def _blocks(english: str, chinese: str) -> Iterator[str]:
    sides = ([(block.info, block.text) for block in blocks(text)] for text in (english, chinese))
    for number, (one, other) in enumerate(zip_longest(*sides), 1):
        if (
            one is None
            or other is None
            or one[0] != other[0]
            or not _alike(one[0], one[1], other[1])
        ):
            yield f"block {number} differs"


def _alike(info: str, english: str, chinese: str) -> bool:
    """The same text; where answers are shown, a line may be one that speaks Chinese."""
    if info not in ("console", "text"):
        return english == chinese
    return all(
        one is not None
        and other is not None
        and (one.split() == other.split() or (not one.startswith("$ ") and _speaks_chinese(other)))
        for one, other in zip_longest(english.splitlines(), chinese.splitlines())
    )


def _speaks_chinese(text: str) -> bool:
    return re.search(r"[\u4e00-\u9fff]", text) is not None


def _headings(english: str, chinese: str) -> Iterator[str]:
    levels = [[level for level, _ in headings(text)] for text in (english, chinese)]
    if levels[0] != levels[1]:
        yield f"the levels of the headings are {levels[0]} and {levels[1]}"


def _links(english: str, chinese: str) -> Iterator[str]:
    """Prose has its own order, and anchors have their own language."""
    targets = [
        sorted(link.partition("#")[0].replace(".zh.md", ".md") for link in links(text))
        for text in (english, chinese)
    ]
    if targets[0] != targets[1]:
        yield f"the links lead to {targets[0]} and {targets[1]}"


def _tops(english: Path, chinese: Path) -> Iterator[str]:
    tops = [page.read_text(encoding="utf-8").split("\n\n", 3)[1:3] for page in (english, chinese)]
    if not any(f"[中文]({chinese.name})" in part for part in tops[0]):
        yield f"{english.name} does not begin with a link to {chinese.name}"
    if not any(f"[English]({english.name})" in part for part in tops[1]):
        yield f"{chinese.name} does not begin with a link to {english.name}"
    if not _speaks_chinese(prose(chinese.read_text(encoding="utf-8")).split("\n")[0]):
        yield f"the title of {chinese.name} is not Chinese"


def english_links(page: Path) -> list[str]:
    """Links of a Chinese page to English pages that exist in Chinese; the one of itself is due."""
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        target = (page.parent / link.partition("#")[0]).resolve()
        if target not in (english_of(page), chinese_of(target)) and chinese_of(target).is_file():
            found.append(link)
    return found


@pytest.mark.parametrize("page", [INDEX, *GUIDES], ids=name_of)
def test_a_page_and_its_chinese_brother_stay_together(page: Path) -> None:
    assert differences(page) == []


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_a_chinese_page_has_an_english_one_and_stays_in_its_language(page: Path) -> None:
    assert english_of(page).is_file()
    assert english_links(page) == []


ENGLISH = "# A\n\n[中文](a.zh.md)\n\n[b](b.md#c)\n\n```sh\nls\n```\n\n## C\n"
SHOWN = "\n```console\n$ status\nrunning\n  pid 1\n```\n"
GOOD = "# 甲\n\n[English](a.md)\n\n[乙](b.zh.md#丙)\n\n```sh\nls\n```\n\n## 丙\n"


@pytest.mark.parametrize(
    ("chinese", "want"),
    [
        (GOOD, []),
        (GOOD.replace("ls", "ls -l"), ["block 1 differs"]),
        (GOOD.replace("```sh", "```text"), ["block 1 differs"]),
        (GOOD + "```sh\nls\n```\n", ["block 2 differs"]),
        (GOOD.replace("## ", "### "), ["the levels of the headings are [1, 2] and [1, 3]"]),
        (
            GOOD.replace("b.zh.md", "c.md"),
            ["the links lead to ['a.md', 'b.md'] and ['a.md', 'c.md']"],
        ),
        (GOOD.replace("甲", "A"), ["the title of a.zh.md is not Chinese"]),
        (
            GOOD.replace("[English](a.md)\n\n", "") + "\n[English](a.md)\n",
            ["a.zh.md does not begin with a link to a.md"],
        ),
    ],
)
def test_planted_differences_are_found(tmp_path: Path, chinese: str, want: list[str]) -> None:
    (tmp_path / "a.md").write_text(ENGLISH, encoding="utf-8")
    (tmp_path / "a.zh.md").write_text(chinese, encoding="utf-8")
    assert differences(tmp_path / "a.md") == want


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        (SHOWN, []),
        (SHOWN.replace("running", "运行中").replace("  pid", " pid"), []),
        (SHOWN.replace("running", "stopped"), ["block 2 differs"]),
        (SHOWN.replace("running\n", ""), ["block 2 differs"]),
        (SHOWN.replace("$ status", "$ status  # 状态"), ["block 2 differs"]),
    ],
)
def test_an_answer_may_be_in_chinese(tmp_path: Path, shown: str, want: list[str]) -> None:
    (tmp_path / "a.md").write_text(ENGLISH + SHOWN, encoding="utf-8")
    (tmp_path / "a.zh.md").write_text(GOOD + shown, encoding="utf-8")
    assert differences(tmp_path / "a.md") == want


def test_a_missing_brother_and_a_link_into_the_other_language_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.zh.md").write_text(GOOD.replace("b.zh.md", "b.md"), encoding="utf-8")
    assert differences(tmp_path / "a.zh.md") == ["a.md is missing"]
    assert english_links(tmp_path / "a.zh.md") == []
    (tmp_path / "b.zh.md").write_text(GOOD, encoding="utf-8")
    assert english_links(tmp_path / "a.zh.md") == ["b.md#丙"]
