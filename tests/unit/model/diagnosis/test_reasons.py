"""Sentences within sentences: each reader gets both in one language, whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.messages import CAUSE, GIVEN, MORE, render
from paddlecloud.model.diagnosis.reasons import caused, together

VALUES = st.dictionaries(st.text(max_size=9), st.one_of(st.text(), st.integers(), st.none()))


def test_the_inner_sentence_is_said_in_the_language_of_the_outer_one() -> None:
    reason = caused("fail_start", "held_no_answer", {}, worker="trainer-0")
    said = [render(reason.code, reason.params, lang) for lang in ("en", "zh")]
    assert said == [
        "trainer-0 could not be started: no response in time",
        "trainer-0 无法启动：没有及时响应",
    ]


@given(st.sampled_from(["fail_start", "nobody_knows_it"]), st.text(), VALUES)
def test_no_values_keep_it_from_being_said(
    code: str, cause: str, values: dict[str, object]
) -> None:
    reason = caused(code, cause, values, worker="w")
    assert "w" in render(reason.code, reason.params, "zh")


def test_very_long_values_are_cut_and_none_is_left_out() -> None:
    values = {"path": "p" * 9000, "size": 1, "expected": 2}
    reason = caused("fail_start", "agent_blob_size", values, worker="w")
    text = render(reason.code, reason.params, "en")
    assert "p" * 100 in text
    assert "has 1 bytes, expected 2" in text
    assert len(text) < 1000


def test_what_is_no_list_of_values_is_said_without() -> None:
    for given_ in ("", "[]", "{", "7"):
        text = render("fail_start", {"worker": "w", CAUSE: "held_no_more", GIVEN: given_}, "en")
        assert text == "w could not be started: continues"


def test_a_third_sentence_within_it_is_said_in_that_language_too() -> None:
    why = {"path": "p" * 200, "bos_url": "bos://b/" + "箱" * 300}
    kept = caused(
        "unsent_kept", "private_file_changed", why, files="文" * 1000, host="h", place="/p", days=7
    )
    reason = caused("fail_outputs_lost", kept.code, kept.params, worker="w")
    english, chinese = (render(reason.code, reason.params, lang) for lang in ("en", "zh"))
    assert "was changed or deleted after" in english
    assert "they are kept for 7 days on h" in english
    assert "在任务提交后被修改或删除" in chinese
    assert "was changed" not in chinese


def test_files_of_several_reasons_are_told_apart_in_one_sentence() -> None:
    why = {"place": "b", "detail": "d"}
    reasons = [
        caused("unsent_given_up", "store_denied", why, files="a"),
        caused("unsent_given_up", "held_no_answer", {}, files="b, c"),
    ]
    one = together(reasons)
    assert render(one.code, one.params, "en") == (
        "b, c (no response in time) and a (the store b rejects these keys (d); check the access "
        "key, the secret key and their permissions); they are not kept"
    )
    assert render(one.code, one.params, "zh").startswith("b, c（没有及时响应）以及 a（存储 b 拒绝")
    assert together(reasons[:1]) == reasons[0]


@given(st.lists(st.text(max_size=3000), min_size=2, max_size=9))
def test_however_many_they_are_it_stays_short(files: list[str]) -> None:
    why = {"detail": "d" * 3000}
    one = together([caused("unsent_given_up", "store_denied", why, files=each) for each in files])
    assert sum(len(str(value)) for value in one.params.values()) < 16_000
    assert files[0] in render(one.code, one.params, "zh")
    outer = caused("fail_outputs_lost", one.code, one.params, worker="w")
    assert "拒绝了这对密钥" in render(outer.code, outer.params, "zh")


def test_what_is_no_list_of_reasons_is_left_out() -> None:
    for rows in ("", "{}", "[7]", "[[]]"):
        told = render("unsent_given_up", {"files": "f", "reason": "r", MORE: rows}, "en")
        assert told == "f (r); they are not kept"
