"""What the loose format of client.conf means, and what writing leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client.config.ini_file import parse, write_main
from paddlecloud.client.config.resolve import _SECTIONS, resolve
from paddlecloud.model.errors import ConfigError
from tests.unit.client.config.published_file import PUBLISHED


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("host = http://a//b", "http://a//b"),
        ("host=http://a // note", "http://a"),
        ("host: a#b", "a#b"),
        ("host: a # b", "a"),
        ("host: a\t; b", "a"),
        ("host:a:b=c", "a:b=c"),
        ("host = a=b:c", "a=b:c"),
        ("host://x", "//x"),
        ("host = ", ""),
        ("host: // nothing", ""),
        ("  HOST\u3000=\u3000x  ", "x"),
        ("host = 张三", "张三"),
        ("host = a\nhost = b", "b"),
        ("host = a\n[main]\n[OpenAPI]\nhost = b", "b"),
        ("host = a\x0bb\u2028c", "a\x0bb\u2028c"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_values_and_comments(line: str, want: str, end: str, mark: str) -> None:
    text = f"{mark}# c\n ; c\n// c\n\n[openapi] # c\n{line}\n".replace("\n", end)
    entries, warnings = parse(text.encode(), "f", _SECTIONS)
    assert entries["openapi.host"][0] == want
    assert warnings == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("nonsense", "config_line"),
        ("= value", "config_line"),
        (": value", "config_line"),
        ("[main", "config_line"),
        ("[]", "config_line"),
        ("[main] ak = 1", "config_line"),
    ],
)
def test_a_bad_line_is_named(line: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[main]\n\n{line}\n".encode(), "dir/client.conf", _SECTIONS)
    assert caught.value.code == code
    assert "dir/client.conf:3" in str(caught.value)
    assert line in str(caught.value)


def test_a_bad_line_does_not_give_a_secret_away() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(b"[main]\nsk 0123456789abcdef0123456789abcdef\n", "f", _SECTIONS)
    assert "sk 0123***" in str(caught.value)
    assert "456789" not in str(caught.value)


LINE = st.one_of(
    st.sampled_from(
        ["[main]", "[bos]:", "[x]", "ak = 1", "userid: 2 // c", "# c", "", "sk:", "sk=1"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
ANY_FILE = st.one_of(
    st.binary(max_size=80),
    st.lists(LINE, max_size=8).map("\n".join).map(str.encode),
    st.lists(LINE, max_size=8).map("\r\n".join).map(lambda text: ("\ufeff" + text).encode()),
)


@given(ANY_FILE)
def test_parsing_raises_nothing_but_a_named_mistake(data: bytes) -> None:
    try:
        entries, warnings = parse(data, "f", _SECTIONS)
    except ConfigError as error:
        assert error.text("zh")
    else:
        assert all(value == value.strip() for value, _ in entries.values())
        assert all(warning.text("en") for warning in warnings)


KEY = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12).filter(
    lambda text: not text.startswith(("#", ";", "//"))
)


@given(ANY_FILE, KEY, KEY, KEY)
def test_writing_sets_three_values_and_touches_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, user_id: str, ak: str, sk: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.conf"
    path.write_bytes(data)
    try:
        before, _ = parse(data, "f", _SECTIONS)
    except ConfigError as error:
        with pytest.raises(ConfigError) as caught:
            write_main(str(path), user_id, ak, sk)
        assert caught.value.code == error.code
        assert path.read_bytes() == data
        return
    write_main(str(path), user_id, ak, sk)
    written = path.read_bytes()
    after, _ = parse(written, "f", _SECTIONS)
    mine = {"main.user_id": user_id, "main.ak": ak, "main.sk": sk}
    assert {name: after[name][0] for name in mine} == mine
    others = {name: value for name, (value, _) in before.items() if name not in mine}
    assert {name: value for name, (value, _) in after.items() if name not in mine} == others
    assert is_subsequence(without_values(data, before), written)
    assert path.stat().st_mode & 0o777 == 0o600
    write_main(str(path), user_id, ak, sk)
    assert path.read_bytes() == written


def test_writing_into_the_published_file_changes_three_values(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_bytes(PUBLISHED.replace("\n", "\r\n").encode())
    write_main(str(path), "张三@163.com", "NEWAK", "NEW//SK")
    want = PUBLISHED.replace("u-1", "张三@163.com").replace("AK1", "NEWAK", 1)
    assert path.read_bytes().decode() == want.replace("SK//1#2;3", "NEW//SK").replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[main]\nuser_id = U\nak = A\nsk = S\n"),
        ("# c", "# c\n\n[main]\nuser_id = U\nak = A\nsk = S\n"),
        ("[main]", "[main]\nuser_id = U\nak = A\nsk = S\n"),
        ("[main]\nak:", "[main]\nak: A\nuser_id = U\nsk = S\n"),
        ("[main]\nak: // c\n\n[bcc]\n", "[main]\nak: A // c\nuser_id = U\nsk = S\n\n[bcc]\n"),
        ("[main]\nsk=1\nsk=2\nak=\nuserid=", "[main]\nsk=1\nsk=S\nak= A\nuserid= U"),
        ("[main]\r\nak=1;2", "[main]\r\nak=A\r\nuser_id = U\r\nsk = S\r\n"),
    ],
)
def test_writing_exactly(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "client.conf"
    path.write_bytes(before.encode())
    write_main(str(path), "U", "A", "S")
    assert path.read_bytes().decode() == after


def test_writing_makes_the_file_and_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "new/dir/client.conf"
    write_main(str(path), "u", "a", "s")
    assert resolve({"config": str(path)}, {}).sk == "s"
    assert [entry.name for entry in path.parent.iterdir()] == ["client.conf"]


def test_writing_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.conf", tmp_path / "client.conf"
    real.write_text("[main]\n")
    link.symlink_to(real)
    write_main(str(link), "u", "a", "s")
    assert link.is_symlink()
    assert "ak = a" in real.read_text()


@pytest.mark.parametrize("value", ["", " a", "a ", "a\nb", "a // b", "# a", "a\u2028b"])
def test_a_value_that_would_not_be_read_back_is_not_written(tmp_path: Path, value: str) -> None:
    path = tmp_path / "client.conf"
    with pytest.raises(ConfigError) as caught:
        write_main(str(path), value, "a", "s")
    assert caught.value.code == "config_value"
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        write_main(str(tmp_path / "file/client.conf"), "u", "a", "s")
    assert caught.value.code == "config_unwritable"


def without_values(data: bytes, entries: dict[str, tuple[str, int]]) -> bytes:
    """The file without the values that writing replaces."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for name in ("main.user_id", "main.ak", "main.sk"):
        value, number = entries.get(name, ("", 0))
        if value:
            head, _, tail = lines[number - 1].rpartition(value.encode())
            lines[number - 1] = head + tail
    return b"\n".join(lines)


def is_subsequence(part: bytes, whole: bytes) -> bool:
    rest = iter(whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    return all(byte in rest for byte in part)
