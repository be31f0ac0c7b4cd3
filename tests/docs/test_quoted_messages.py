"""The table of failures quotes messages that exist, so that a reader can search for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddlecloud.messages.tables import TEXTS
from tests.docs.pages import DOCS

PAGE = DOCS / "how-to" / "understand-a-failure.md"
QUOTES = {"en": r'"([^"]+)"', "zh": r"“([^”]+)”"}


def missing(text: str, language: str) -> list[str]:
    """Quotes in the first column that no message contains; X, N and …… stand for any words."""
    messages = [en if language == "en" else zh for en, zh in TEXTS.values()]
    rows = re.findall(r"^\| `(?:failed|timeout|killed)`([^|]*)\|", text, re.MULTILINE)
    quotes = [quote for row in rows for quote in re.findall(QUOTES[language], row)]
    assert quotes, "the page has no table of failures"
    return [quote for quote in quotes if not any(pattern(quote).search(one) for one in messages)]


def pattern(quote: str) -> re.Pattern[str]:
    parts = re.split(r"\b[XN]\b|……", quote)
    return re.compile(r"[\s\S]+?".join(re.escape(part) for part in parts))


@pytest.mark.parametrize(("page", "language"), [(PAGE, "en"), (PAGE.with_suffix(".zh.md"), "zh")])
def test_quoted_messages_exist(page: Path, language: str) -> None:
    assert missing(page.read_text(encoding="utf-8"), language) == []


def test_a_planted_unknown_quote_is_found() -> None:
    page = '| `failed`, "exited with code N" | x |\n| `failed`, "went to bed" | y |\n'
    assert missing(page, "en") == ["went to bed"]
