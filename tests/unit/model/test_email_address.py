"""Addresses: one form for each, and an id for each that nobody else gets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model import email_address
from paddlecloud.model.errors import Invalid


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        ("your_name@163.com", "your_name@163.com"),
        ("  Your_Name@163.COM ", "your_name@163.com"),
        ("张三@163.com", "张三@163.com"),
        ("a@例子.公司", "a@xn--fsqu00a.xn--55qx5d"),
        ("a@xn--fsqu00a.xn--55qx5d", "a@xn--fsqu00a.xn--55qx5d"),
        ("cafe\u0301@example.com", "caf\u00e9@example.com"),
        ("a+tag@example.com", "a+tag@example.com"),
        ("o'brien@example.com", "o'brien@example.com"),
        ("a@localhost", "a@localhost"),
        ("\uff21lice@example.com", "\uff41lice@example.com"),
    ],
)
def test_an_address_has_one_form(typed: str, want: str) -> None:
    assert email_address.canonical(typed) == want
    assert email_address.canonical(want) == want


@pytest.mark.parametrize(
    "typed",
    [
        "", "@", "a@", "@b.c", "a", "a b@c.de", "a@b@c.de", "a..b@c.de", ".a@c.de", "a.@c.de",
        "a@-b.de", "a@b..de", "a@b_c.de", "a@[127.0.0.1]", '"a b"@c.de', "a\r\nBcc: x@y.z",
        "a@b.de\r\nBcc: x@y.z", "a\0@b.de", "a\u202e@b.de", "a@b.de, c@d.ef", "<a@b.de>",
        "x" * 65 + "@b.de", "a@" + "b" * 64 + ".de", "a@" + ".".join(["b" * 60] * 5),
        "a\u3000b@c.de", "a@b.de/../../x",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(Invalid) as caught:
        email_address.canonical(typed)
    assert caught.value.code == "email_invalid"
    assert str(caught.value).isprintable()


@given(st.text(max_size=40), st.text(max_size=40))
def test_the_form_is_stable_and_safe_whatever_is_typed(local: str, domain: str) -> None:
    try:
        found = email_address.canonical(f"{local}@{domain}")
    except Invalid:
        return
    assert email_address.canonical(found) == found
    assert found.isprintable() and " " not in found and found.count("@") == 1
    assert email_address.domain_of(found).isascii()
    assert email_address.is_user_id(email_address.id_for(found, lambda _: True))


@pytest.mark.parametrize(
    ("email", "want"),
    [
        ("your_name@163.com", "your_name"),
        ("john.doe@example.com", "john.doe"),
        ("admin@example.com", r"admin-[0-9a-f]{6}"),
        ("张三@163.com", r"user-[0-9a-f]{6}"),
        ("张三abc@163.com", r"abc-[0-9a-f]{6}"),
        ("a+tag@example.com", r"a-[0-9a-f]{6}"),
        ("_bob@example.com", r"bob-[0-9a-f]{6}"),
        ("o'brien@example.com", r"o-brien-[0-9a-f]{6}"),
    ],
)
def test_an_id_is_made_of_the_address(email: str, want: str) -> None:
    name = email_address.id_for(email, lambda _: True)
    assert re.fullmatch(want, name)
    assert email_address.id_for(email, lambda _: True) == name


def test_who_comes_second_gets_a_suffix_of_their_own() -> None:
    first = email_address.id_for("ann@a.example", lambda _: True)
    second = email_address.id_for("ann@b.example", lambda name: name != first)
    third = email_address.id_for("ann@c.example", lambda name: name not in (first, second))
    assert first == "ann"
    assert len({first, second, third}) == 3
    taken = {second}
    longer = email_address.id_for("ann@b.example", lambda name: name != first and name not in taken)
    assert longer.startswith(second) and longer != second


@pytest.mark.parametrize("domain", ["Example.COM", "@example.com", " example.com "])
def test_a_domain_of_a_list_is_compared_in_the_same_form(domain: str) -> None:
    assert email_address.canonical_domain(domain) == "example.com"
    assert email_address.canonical_domain("例子.公司") == "xn--fsqu00a.xn--55qx5d"
    assert email_address.canonical_domain("a b") == ""


@pytest.mark.parametrize("text", ["", ".", "..", "-a", "a/b", "a b", "张", "a" * 65, "a\n", "_a"])
def test_what_cannot_be_an_id(text: str) -> None:
    assert not email_address.is_user_id(text)
