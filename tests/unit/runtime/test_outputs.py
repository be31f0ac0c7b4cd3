"""Names of output files that are no text: each gets one that can be told, and no two the same."""

from __future__ import annotations

import os
from pathlib import Path

from paddlecloud.runtime import lastwords, outputs


def put(top: Path, *names: bytes) -> None:
    for name in names:
        place = top / os.fsdecode(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(name)


def test_each_name_has_its_own_and_only_what_is_no_text_is_changed(tmp_path: Path) -> None:
    put(tmp_path / "output", b"\xb0\xa3", b"\xb0\xa4", b"%B0%A4", b"50%", b"%\xff", b"\xff\xff")
    put(tmp_path / "output", "模型".encode(), b"d\xd0/one")
    found = list(outputs.scan(tmp_path))
    contents = {each.path: each.where.read_bytes() for each in found}
    assert contents == {
        "%B0%A3": b"\xb0\xa3",
        "%B0%A4": b"%B0%A4",
        "%B0%A4~": b"\xb0\xa4",
        "50%": b"50%",
        "%25%FF": b"%\xff",
        "%FF%FF": b"\xff\xff",
        "模型": "模型".encode(),
        "d%D0/one": b"d\xd0/one",
    }
    assert {each.path for each in found if not each.renamed} == {"%B0%A4", "50%", "模型"}
    for each in found:
        each.name.encode()
        with outputs.open_inside(each, tmp_path) as file:  # type: ignore[union-attr]
            assert file.read() == contents[each.path]


def test_what_was_renamed_is_told_in_both_languages() -> None:
    english, chinese = lastwords.of_names(["output/%B0%A3"]).splitlines()
    assert ": %B0%A3; " in english
    assert "no UTF-8" in english
    assert "：%B0%A3；" in chinese
    assert "不是 UTF-8" in chinese
