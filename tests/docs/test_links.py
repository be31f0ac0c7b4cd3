"""Links between pages resolve, down to the heading, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, TOP, headings, links, name_of

INDEXES = [DOCS / "README.md", DOCS / "README.zh.md"]


def anchors(text: str) -> set[str]:
    """The names that a heading gets on the usual hosts."""
    return {re.sub(r"[^\w\- ]", "", told.lower()).replace(" ", "-") for _, told in headings(text)}


def broken(page: Path) -> list[str]:
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.is_file() or (anchor and anchor not in anchors(path.read_text("utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    assert broken(page) == []


def test_every_page_of_the_documents_is_in_the_index_of_its_language() -> None:
    linked = [link for index in INDEXES for link in links(index.read_text(encoding="utf-8"))]
    reached = {(DOCS / link.partition("#")[0]).resolve() for link in linked}
    missing = [name_of(page) for page in DOCS.rglob("*.md") if page not in reached]
    assert sorted(missing) == []


def test_planted_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# A b\n[x](b.md) [y](#a-b) [z](#c) `[code](no.md)` [w](https://example.com)\n")
    assert broken(page) == ["b.md", "#c"]


def test_both_languages_have_the_same_blocks() -> None:
    for name in ("README", "docs/quickstart"):
        english, chinese = (
            [
                line
                for line in (TOP / f"{name}{suffix}.md").read_text(encoding="utf-8").splitlines()
                if re.match(r"(\$ )?paddlecloud ", line)
            ]
            for suffix in ("", ".zh")
        )
        commands = [
            [line.partition("#")[0].partition("||")[0].strip() for line in lines]
            for lines in (english, chinese)
        ]
        assert commands[0] == commands[1]
