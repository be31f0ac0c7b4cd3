"""A request without its shape is answered in the words of who sent it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from msgspec import Meta, Struct
from msgspec.json import encode

from paddlecloud.model.errors import Invalid
from paddlecloud.server.http._validation_errors import RULES
from paddlecloud.server.http.request_body import decode_body, decode_query
from paddlecloud.server.route_table import ROUTES
from paddlecloud.server.schemas.accounts import UserRequest


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=9)]


class Outer(Struct, forbid_unknown_fields=True):
    spec: Inner
    name: Annotated[str, Meta(min_length=2, max_length=4)] = "name"
    names: Annotated[list[str], Meta(max_length=2)] | None = None
    colour: Colour = Colour.RED
    word: Literal["yes", "no"] | None = None
    part: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    secret: Annotated[str, Meta(max_length=3)] = ""
    pairs: dict[str, str] = {}
    flag: bool = False
    point: tuple[int, int] = (0, 0)


def complaint(given: dict[str, object], lang: str = "en") -> str:
    with pytest.raises(Invalid) as caught:
        decode_body(encode({"spec": {"count": 1}, **given}), Outer, lang)
    assert caught.value.code == "body_invalid"
    return str(caught.value.params["detail"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "x" * 300}, "name has 300 characters, the maximum is 4; give a shorter one"),
        ({"name": "x"}, "name has 1 characters, the minimum is 2; give a longer one"),
        ({"name": 7}, "name is 7, it must be text"),
        ({"names": "x"}, "names is 'x', it must be a list / nothing"),
        ({"names": ["a", "b", "c"]}, "names has 3 entries, the maximum is 2; give fewer at once"),
        ({"names": ["a", 7]}, "names[1] is 7, it must be text"),
        ({"spec": {"count": 10}}, "count is 10, the maximum is 9; give less"),
        ({"spec": {"count": 0}}, "count is 0, the minimum is 1; give more"),
        ({"spec": {}}, "count is missing; give it"),
        ({"spec": {"count": 1, "colour": 1}}, "unknown field colour; remove it, or use a server"),
        ({"colour": "green"}, "colour is 'green', it must be one of: red, blue"),
        ({"word": "perhaps"}, "word is 'perhaps', it must be one of: no, yes"),
        ({"part": 1.0}, "part is 1.0, it must be less than 1"),
        ({"part": 0.0}, "part is 0.0, it must be more than 0"),
        ({"secret": "hush"}, "secret has 4 characters, the maximum is 3"),
        ({"secret": 99}, "secret is ..., it must be text"),
        ({"pairs": {"a": "b", "c": 7}}, "pairs.c is 7, it must be text"),
        ({"flag": 1}, "flag is 1, it must be true or false"),
        ({"count": True}, "unknown field count"),
    ],
)
def test_the_name_the_value_and_the_rule_are_told(given: dict[str, object], says: str) -> None:
    assert complaint(given).startswith(says)
    chinese = complaint(given, "zh")
    assert not chinese.isascii()
    assert "Expected" not in chinese


def test_what_our_rules_do_not_find_is_told_in_the_words_of_the_decoder() -> None:
    assert complaint({"point": [1, "x"]}) == "Expected `int`, got `str` - at `$.point[1]`"


def test_a_query_names_the_value_that_is_wrong_and_no_other() -> None:
    class Query(Struct):
        name: str = ""
        limit: Annotated[int, Meta(le=9)] | None = None

    with pytest.raises(Invalid, match="limit is 10, the maximum is 9"):
        decode_query([("name", "123"), ("limit", "10")], Query)
    with pytest.raises(Invalid, match="limit is 'x', it must be"):
        decode_query([("name", "123"), ("limit", "x")], Query)


def test_the_rule_of_a_name_is_told_in_words() -> None:
    with pytest.raises(Invalid) as caught:
        decode_body(encode({"user_id": "a b"}), UserRequest, "zh")
    detail = str(caught.value.params["detail"])
    assert detail == "user_id 为 'a b'，应为由字母、数字、_ . - 组成且以字母或数字开头的名称"


def test_a_query_is_told_in_the_same_words() -> None:
    with pytest.raises(Invalid) as caught:
        decode_query([("count", "500")], Inner)
    assert caught.value.text("en").endswith("count is 500, the maximum is 9; give less")
    with pytest.raises(Invalid, match="count is given twice; give it once"):
        decode_query([("count", "5"), ("count", "6")], Inner)


def test_each_pattern_of_each_route_has_its_words() -> None:
    shapes = [each for route in ROUTES for each in (route.body, route.query) if each is not None]
    found = {pattern for shape in shapes for pattern in patterns(shape, set())}
    assert found
    assert found <= set(RULES)


def patterns(kind: Any, seen: set[Any]) -> Iterator[str]:
    if get_origin(kind) is Annotated:
        for note in get_args(kind)[1:]:
            if isinstance(note, Meta) and note.pattern:
                yield note.pattern
    for part in get_args(kind):
        yield from patterns(part, seen)
    if isinstance(kind, type) and issubclass(kind, Struct) and kind not in seen:
        seen.add(kind)
        for hint in get_type_hints(kind, include_extras=True).values():
            yield from patterns(hint, seen)
