"""What is wrong with a request that does not have its shape, as a sentence for who sent it.

The decoder tells it in English and in its own terms. A person typed a flag, so they are told the
name, the value, the rule and what to do, in their language. Reads the decoder's message, because
that is all it gives; a message that is not known here is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

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
"""The rule that each pattern of a shape stands for, in words."""
_LONGEST = 50
_HIDDEN = re.compile(r"key|secret|token|password|env\b|webhook|\bsk\b")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_KINDS = {
    "str": "kind_text",
    "int": "kind_integer",
    "float": "kind_number",
    "bool": "kind_bool",
    "array": "kind_list",
    "object": "kind_object",
    "null": "kind_nothing",
}
_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def told(error: Exception, given: Callable[[], object], shape: type, lang: str) -> str:
    """The sentence for what the decoder says; `given` are the values without any shape."""
    message = str(error)
    found = _PLACE.search(message)
    place = found[1] if found else ""
    complaint = message[: found.start()] if found else message
    for pattern, sentence in _COMPLAINTS:
        match = pattern.fullmatch(complaint)
        if match is not None:
            value = _value(given, place)
            return sentence(_Misfit(place, value, shape, lang), *match.groups())
    return message


class _Misfit:
    """A value at its place, and the language in which it is spoken of."""

    def __init__(self, place: str, value: object, shape: type, lang: str) -> None:
        self.place = place
        self.value = value
        self.shape = shape
        self.lang = lang

    @property
    def field(self) -> str:
        """The name that a person knows: the parameters of a job are those of its spec."""
        return self.place.removeprefix("spec.") or "$"

    @property
    def shown(self) -> str:
        if self.value is msgspec.UNSET or _HIDDEN.search(self.place):
            return "..."
        text = str(self.value)[:_LONGEST]
        quoted = isinstance(self.value, str) and not _NUMBER.fullmatch(text)
        return repr(text) if quoted else text

    @property
    def size(self) -> object:
        sized = isinstance(self.value, str | list | dict)
        return len(self.value) if sized else "?"  # type: ignore[arg-type]

    def say(self, code: str, **params: object) -> str:
        return render(code, {"field": self.field, **params}, self.lang)


def _long(misfit: _Misfit, kind: str, sign: str, limit: str) -> str:
    code = "field_entries" if kind in ("array", "object") else "field_letters"
    most = "most" if sign.startswith("<") else "least"
    return misfit.say(f"{code}_{most}", size=misfit.size, limit=limit)


def _range(misfit: _Misfit, _kind: str, sign: str, limit: str) -> str:
    code = {"<=": "field_above", ">=": "field_below", "<": "field_not_less"}
    return misfit.say(code.get(sign, "field_not_more"), value=misfit.shown, limit=limit)


def _pattern(misfit: _Misfit, quoted: str) -> str:
    pattern = quoted[1:-1].encode().decode("unicode_escape")
    code = RULES.get(pattern)
    rule = render(code, {}, misfit.lang) if code else pattern
    return misfit.say("field_rule", value=misfit.shown, rule=rule)


def _kind(misfit: _Misfit, wanted: str, _got: str) -> str:
    kinds = [_KINDS.get(each.strip()) for each in wanted.split("|")]
    words = [render(code, {}, misfit.lang) for code in kinds if code]
    rule = " / ".join(words) or wanted
    return misfit.say("field_rule", value=misfit.shown, rule=rule)


def _missing(misfit: _Misfit, name: str) -> str:
    return _below(misfit, name).say("field_missing")


def _unknown(misfit: _Misfit, name: str) -> str:
    return _below(misfit, name[:_LONGEST]).say("field_unknown")


def _choice(misfit: _Misfit, _value: str) -> str:
    known = ", ".join(map(str, _choices(misfit.shape, misfit.place)))
    return misfit.say("field_choice", value=misfit.shown, known=known or "?")


def _below(misfit: _Misfit, name: str) -> _Misfit:
    place = f"{misfit.place}.{name}" if misfit.place else name
    return _Misfit(place, msgspec.UNSET, misfit.shape, misfit.lang)


def _value(given: Callable[[], object], place: str) -> object:
    """What stands at the place; UNSET where nobody can tell."""
    try:
        value: Any = given()
        for name, number in _STEP.findall(place):
            value = value[name] if name else value[int(number)]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return msgspec.UNSET
    return value


def _choices(shape: object, place: str) -> list[object]:
    """The values that a field with a fixed set of them may have."""
    kind: Any = shape
    for name, _ in _STEP.findall(place):
        hints = get_type_hints(kind) if isinstance(kind, type) else {}
        kind = hints.get(name)
    return _possible(kind)


def _possible(kind: Any) -> list[object]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [member.value for member in kind]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [value for part in get_args(kind) for value in _possible(part)]


_COMPLAINTS: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (re.compile(r"Expected `(\w+)` of length (<=|>=) (\d+)"), _long),
    (re.compile(r"Expected `(\w+)` (<=|>=|<|>) (\S+)"), _range),
    (re.compile(r"Expected `str` matching regex (.*)", re.DOTALL), _pattern),
    (re.compile(r"Expected `([^`]*)`, got `([^`]*)`"), _kind),
    (re.compile(r"Object missing required field `(.*)`", re.DOTALL), _missing),
    (re.compile(r"Object contains unknown field `(.*)`", re.DOTALL), _unknown),
    (re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL), _choice),
)
