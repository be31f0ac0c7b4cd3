"""Sentences: none raises, each exists in both languages with the same values."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.texts import LANGUAGES, TEXTS, render


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_a_sentence_names_the_same_values_in_both_languages(code: str) -> None:
    english, chinese = TEXTS[code]
    assert fields(english) == fields(chinese)
    assert all(name.isidentifier() for name in fields(english))


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_a_sentence_is_one_line_without_a_full_stop(code: str) -> None:
    for sentence in TEXTS[code]:
        assert "\n" not in sentence
        assert sentence == sentence.strip()
        assert not sentence.endswith((".", "。"))


def test_an_unknown_code_still_tells_what_it_knows() -> None:
    assert render("from_the_future", {"a": 1}, "en") == "from_the_future: a=1"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_missing_value_does_not_raise(lang: str) -> None:
    assert "{cluster}" in render("cluster_unknown", {"known": "x"}, lang)


def test_an_unknown_language_is_english() -> None:
    params = {"cluster": "a", "known": "b"}
    assert render("cluster_unknown", params, "fr") == render("cluster_unknown", params, "en")


@given(
    st.sampled_from(sorted(TEXTS)),
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8)),
    st.sampled_from(LANGUAGES),
)
def test_rendering_never_raises(code: str, params: dict[str, object], lang: str) -> None:
    assert render(code, params, lang)
