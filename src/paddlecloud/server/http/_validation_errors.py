"""Explains in the sender's language why a request does not match its schema.

msgspec reports a mismatch in English and in its own terms. Users get the field, the value, the rule
and what to do: the values are compared with the schema once more, by the rules below. What these do
not find is reported in msgspec's words.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import DecodeError, ValidationError, convert, inspect

from paddlecloud.messages import render

RULES: Mapping[str, str] = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z": "rule_user_id",
    r"^[A-Za-z0-9_.-]+\Z": "rule_word",
    r"^[^\x00-\x1f\x7f]*\Z": "rule_printable",
    r"^[^\x00]*\Z": "rule_no_nul",
    r"^[0-9a-f]{64}\Z": "rule_sha256",
    r"^[0-9a-f]+\Z": "rule_hex",
    r"^([0-9a-f]{24})?\Z": "rule_hex",
}
"""The message for each pattern of a schema."""
_LIMITS = (
    ("max_length", operator.gt, "most"),
    ("min_length", operator.lt, "least"),
    ("le", operator.gt, "field_above"),
    ("ge", operator.lt, "field_below"),
    ("lt", operator.ge, "field_not_less"),
    ("gt", operator.le, "field_not_more"),
)
_KINDS: Mapping[type, tuple[str, tuple[type, ...]]] = {
    inspect.StrType: ("kind_text", (str,)),
    inspect.IntType: ("kind_integer", (int,)),
    inspect.FloatType: ("kind_number", (int, float)),
    inspect.BoolType: ("kind_bool", (bool,)),
    inspect.ListType: ("kind_list", (list,)),
    inspect.DictType: ("kind_object", (dict,)),
    inspect.StructType: ("kind_object", (dict,)),
    inspect.NoneType: ("kind_nothing", (type(None),)),
}
_HIDDEN = re.compile(r"key|secret|token|password|env\b|webhook|\bsk\b")
_LONGEST = 50

Problem = tuple[str, str, dict[str, Any]]
"""A message code, the path of the field, and further parameters of the message."""


def explain(error: Exception, given: Callable[[], object], schema: type, lang: str) -> str:
    """The sentence for this error; `given` returns the values as they were sent."""
    try:
        found = next(_problems(inspect.type_info(schema), given(), ""), None)
    except (DecodeError, RecursionError):
        found = None
    if found is None:
        return str(error)
    code, path, params = found
    if "value" in params:
        params["value"] = "..." if _HIDDEN.search(path) else _shown(params["value"])
    if "rule" in params:
        params["rule"] = " / ".join(render(rule, {}, lang) for rule in params["rule"])
    field = path.removeprefix("spec.")[:_LONGEST] or "$"
    return render(code, {"field": field, **params}, lang)


def query_values(pairs: Mapping[str, str], schema: type) -> dict[str, object]:
    """A query string as JSON values: what the schema wants as a number is one if it can be."""
    values: dict[str, object] = dict(pairs)
    info = inspect.type_info(schema)
    for field in info.fields if isinstance(info, inspect.StructType) else ():
        options = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        if any(isinstance(each, inspect.IntType | inspect.FloatType) for each in options):
            with suppress(KeyError, ValidationError):
                given = pairs[field.encode_name]
                values[field.encode_name] = convert(given, int | float, strict=False)
    return values


def _problems(info: inspect.Type, value: Any, path: str) -> Iterator[Problem]:
    options = info.types if isinstance(info, inspect.UnionType) else (info,)
    choices = [choice for each in options for choice in _choices(each)]
    fitting = next((each for each in options if _is_of(each, value)), None)
    if fitting is None and choices and value not in choices:
        known = ", ".join(map(str, choices))
        yield "field_choice", path, {"value": value, "known": known}
    elif fitting is None and not choices:
        rule = [_KINDS[type(each)][0] for each in options if type(each) in _KINDS]
        yield "field_rule", path, {"value": value, "rule": rule}
    elif isinstance(fitting, inspect.StructType):
        yield from _problems_of_object(fitting, value, f"{path}." if path else "")
    else:
        yield from _problems_of_value(fitting, value, path)


def _problems_of_value(info: inspect.Type | None, value: Any, path: str) -> Iterator[Problem]:
    sized = isinstance(value, str | list | dict)
    for attribute, is_broken, code in _LIMITS:
        limit = getattr(info, attribute, None)
        if limit is None or not is_broken(len(value) if sized else value, limit):
            continue
        if sized:
            kind = "field_letters" if isinstance(value, str) else "field_entries"
            yield f"{kind}_{code}", path, {"size": len(value), "limit": limit}
        else:
            yield code, path, {"value": value, "limit": limit}
    pattern = getattr(info, "pattern", None) or ""
    if pattern in RULES and not re.search(pattern, value):
        yield "field_rule", path, {"value": value, "rule": [RULES[pattern]]}
    if isinstance(info, inspect.ListType):
        for number, each in enumerate(value):
            yield from _problems(info.item_type, each, f"{path}[{number}]")
    if isinstance(info, inspect.DictType):
        for key, each in value.items():
            yield from _problems(info.key_type, key, path)
            yield from _problems(info.value_type, each, f"{path}.{key}")


def _problems_of_object(info: inspect.StructType, value: Any, above: str) -> Iterator[Problem]:
    for field in info.fields:
        if field.encode_name in value:
            yield from _problems(field.type, value[field.encode_name], above + field.encode_name)
        elif field.required:
            yield "field_missing", above + field.encode_name, {}
    for name in value.keys() - {field.encode_name for field in info.fields}:
        yield "field_unknown", above + name, {}


def _is_of(info: inspect.Type, value: Any) -> bool:
    if type(info) not in _KINDS:
        choices = _choices(info)
        return value in choices if choices else True
    types = _KINDS[type(info)][1]
    return bool in types if isinstance(value, bool) else isinstance(value, types)


def _choices(info: inspect.Type) -> list[Any]:
    if isinstance(info, inspect.EnumType):
        return [member.value for member in info.cls]
    return list(info.values) if isinstance(info, inspect.LiteralType) else []


def _shown(value: object) -> str:
    text = str(value)[:_LONGEST]
    is_number = text.removeprefix("-").replace(".", "", 1).isdigit()
    return text if is_number or not isinstance(value, str) else repr(text)
