"""Sentences: none raises, each exists in both languages with the same values."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddlecloud
from paddlecloud.messages import CAUSE, GIVEN, LANGUAGES, MORE, render
from paddlecloud.messages.tables import TEXTS


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def test_messages_have_the_same_values_in_both_languages() -> None:
    for code, (english, chinese) in TEXTS.items():
        assert fields(english) == fields(chinese), code
        assert all(name.isidentifier() for name in fields(english)), code


def test_messages_are_one_line_without_a_full_stop() -> None:
    for code, sentences in TEXTS.items():
        for sentence in sentences:
            assert "\n" not in sentence, code
            assert sentence == sentence.strip(), code
            assert not sentence.endswith((".", "。")), code


def test_an_unknown_code_still_tells_what_it_knows() -> None:
    assert render("from_the_future", {"a": 1}, "en") == "from_the_future: a=1"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_missing_value_does_not_raise(lang: str) -> None:
    assert "{cluster}" in render("cluster_unknown", {"known": "x"}, lang)


def test_an_unknown_language_is_english() -> None:
    params = {"cluster": "a", "known": "b"}
    assert render("cluster_unknown", params, "fr") == render("cluster_unknown", params, "en")


NAMES = {name for english, _ in TEXTS.values() for name in fields(english)} | {CAUSE, GIVEN, MORE}


@given(
    st.sampled_from(sorted(TEXTS)),
    st.dictionaries(
        st.text(max_size=8) | st.sampled_from(sorted(NAMES)),
        st.none() | st.integers() | st.text(max_size=8) | st.lists(st.none()) | st.just("[" * 9999),
    ),
    st.sampled_from(LANGUAGES),
)
def test_rendering_never_raises(code: str, params: dict[str, object], lang: str) -> None:
    assert render(code, params, lang)


def test_no_message_shows_the_code_of_another() -> None:
    """`cause` and `more` hold codes: a message contains the `reason` made of them."""
    for code, (english, _) in TEXTS.items():
        assert not fields(english) & {CAUSE, MORE}, code


def test_no_value_of_a_sentence_is_a_code() -> None:
    """A value that is the `code` of an error would be shown to a person; `code` and `cause` alone
    hold one, and no sentence shows those."""
    source = Path(paddlecloud.__file__).parent
    found = []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name, value in _named_values(node):
                if name not in ("code", CAUSE) and _is_code(value):
                    found.append(f"{path.relative_to(source)}:{value.lineno} {name}")
    assert found == []


def _named_values(node: ast.AST) -> list[tuple[object, ast.expr]]:
    if isinstance(node, ast.Call):
        return [(word.arg, word.value) for word in node.keywords]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
    return []


def _is_code(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr == "code"
