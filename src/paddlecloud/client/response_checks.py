"""Validates the responses of a server before the client uses them.

A schema is a function that takes a value and raises `Mismatch` if it is of another kind; the
schemas of all routes are in `response_schemas`. Keys that a schema does not name are ignored, so
that a newer server may send more. Numbers have limits because the client counts, allocates and
slices by them.
"""

from __future__ import annotations

import json

from paddlecloud.messages import words
from paddlecloud.model.errors import Internal
from paddlecloud.net.endpoint import split_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

    Schema = Callable[[Any], None]

#: The largest whole number that every JSON reader keeps exact.
LARGEST = 1 << 53
_LONGEST_SHOWN = 60
_ABSENT = object()


class Mismatch(Exception):
    """A value is not of the kind that its schema asks for."""

    def __init__(self, value: object, want: str, **limits: object) -> None:
        super().__init__(want)
        self.value = value
        self.want = want
        self.limits = limits
        #: Keys and indexes that lead to the value, the innermost first.
        self.path: list[str | int] = []


def parse(text: bytes | str) -> Any:
    """The value of a JSON text; ValueError if it is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def check(value: object, schema: Schema) -> None:
    """Internal (response_invalid) if the value does not fit the schema."""
    try:
        schema(value)
    except Mismatch as mismatch:
        steps = reversed(mismatch.path)
        where = "".join(f"[{step}]" if type(step) is int else f".{step}" for step in steps)
        refuse(where, mismatch.value, mismatch.want, **mismatch.limits)


def refuse(where: str, value: object, want: str, **limits: object) -> NoReturn:
    """Internal (response_invalid): the value at `where` is not what `want` asks for."""
    raise Internal(
        "response_invalid",
        where=where.removeprefix(".") or words("response_whole"),
        value=_shown(value),
        want=words(want, **limits),
    )


def number(headers: Mapping[str, str], name: str, default: int = 0) -> int:
    """The whole number in a header."""
    text = headers.get(name)
    if text is None:
        return default
    found = whole_number(text)
    if found is None:
        refuse(name, text, "response_count", most=LARGEST)
    return found


def whole_number(text: str) -> int | None:
    """The whole number in a text, if it is one and not too large."""
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        return None
    return int(text)


def anything(value: Any) -> None:
    """For values that are only passed on."""
    if value is _ABSENT:
        raise Mismatch(value, "response_any")


def text(value: Any) -> None:
    if type(value) is not str:
        raise Mismatch(value, "response_text")


def name(value: Any) -> None:
    """Text that can be part of a request: half of a character cannot be encoded."""
    text(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Mismatch(value, "response_text") from None


def flag(value: Any) -> None:
    if type(value) is not bool:
        raise Mismatch(value, "response_flag")


def integer(value: Any) -> None:
    if type(value) is not int or not -LARGEST <= value <= LARGEST:
        raise Mismatch(value, "response_integer", most=LARGEST)


def count(value: Any) -> None:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise Mismatch(value, "response_count", most=LARGEST)


def measure(value: Any) -> None:
    """A number with or without a fraction; neither infinite nor none at all."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise Mismatch(value, "response_number", most=LARGEST)


def scalar(value: Any) -> None:
    """Text, a number, true, false or null."""
    if type(value) in (int, float):
        measure(value)
    elif value is not None and type(value) not in (str, bool):
        raise Mismatch(value, "response_scalar")


def url(value: Any) -> None:
    """A URL that can be requested."""
    text(value)
    if not _is_url(value):
        raise Mismatch(value, "response_url")


def url_or_path(value: Any) -> None:
    """A URL, or a path on this machine."""
    text(value)
    if "\0" in value or not (value.startswith("/") or _is_url(value)):
        raise Mismatch(value, "response_url")


def one_of(*choices: str) -> Schema:
    def schema(value: Any) -> None:
        if value not in choices:
            raise Mismatch(value, "response_choice", choices=", ".join(choices))

    return schema


def maybe(inner: Schema) -> Schema:
    """Null, or that."""

    def schema(value: Any) -> None:
        if value is not None:
            inner(value)

    return schema


def up_to(most: int) -> Schema:
    """A whole number from 0 to `most`."""

    def schema(value: Any) -> None:
        if type(value) is not int or not 0 <= value <= most:
            raise Mismatch(value, "response_count", most=most)

    return schema


def each(inner: Schema) -> Schema:
    """A list of those."""

    def schema(value: Any) -> None:
        if type(value) is not list:
            raise Mismatch(value, "response_list")
        for at, item in enumerate(value):
            try:
                inner(item)
            except Mismatch as mismatch:
                mismatch.path.append(at)
                raise

    return schema


def row(*inner: Schema) -> Schema:
    """A list with these, one after the other."""

    def schema(value: Any) -> None:
        if type(value) is not list or len(value) != len(inner):
            raise Mismatch(value, "response_row", count=len(inner))
        for at, fits in enumerate(inner):
            try:
                fits(value[at])
            except Mismatch as mismatch:
                mismatch.path.append(at)
                raise

    return schema


def by_key(inner: Schema) -> Schema:
    """An object whose values are all of one kind."""

    def schema(value: Any) -> None:
        if type(value) is not dict:
            raise Mismatch(value, "response_object")
        for key, item in value.items():
            try:
                inner(item)
            except Mismatch as mismatch:
                mismatch.path.append(_shortened(key))
                raise

    return schema


def keys(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object that has these keys, and may have the optional ones."""
    needed, possible = tuple(required.items()), tuple((optional or {}).items())

    def schema(value: Any) -> None:
        if type(value) is not dict:
            raise Mismatch(value, "response_object")
        key = ""
        try:
            for key, inner in needed:
                inner(value.get(key, _ABSENT))
            for key, inner in possible:
                if key in value:
                    inner(value[key])
        except Mismatch as mismatch:
            mismatch.path.append(key)
            raise

    return schema


def _is_url(value: str) -> bool:
    scheme, found, rest = value.partition("://")
    if scheme not in ("http", "https") or not found or not rest.isascii() or " " in rest:
        return False
    try:
        _, host, port = split_url(value)
    except ValueError:
        return False
    return rest.isprintable() and bool(host) and 0 < port < 1 << 16


def _shortened(key: str) -> str:
    """A key that the server chose, as it can be shown to a person."""
    from paddlecloud.client.file_names import shown  # noqa: PLC0415 - seldom needed

    return shown(key[:_LONGEST_SHOWN])


def _shown(value: object) -> str:
    """A value as JSON, shortened, without control characters."""
    if value is _ABSENT:
        return words("response_missing")
    if isinstance(value, dict | list):
        return words("response_some_object" if isinstance(value, dict) else "response_some_list")
    short = value[:_LONGEST_SHOWN] if isinstance(value, str) else value
    shown = json.dumps(short)
    is_cut = short != value or len(shown) > _LONGEST_SHOWN
    return f"{shown[:_LONGEST_SHOWN]}..." if is_cut else shown
