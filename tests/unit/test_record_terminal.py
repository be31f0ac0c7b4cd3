"""The script that draws the pictures of the README."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.record_terminal import COLUMNS, COMMANDS, Screen, picture

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def shown(text: str) -> list[str]:
    screen = Screen()
    screen.write(text, 0.0)
    return ["".join(letter for letter, _ in line.cells) for line in screen.lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\n\nb", ["a", "", "b"]),
        ("10%\r100%\n", ["100%"]),
        ("long\r\x1b[Kab\n", ["ab"]),
        ("x" * (COLUMNS + 1), ["x" * COLUMNS, "x"]),
        ("务" * 41, ["务" * 40, "务"]),
        ("\x1b[32mok\x1b[0m!\n", ["ok!"]),
    ],
)
def test_a_screen_shows_what_a_terminal_shows(text: str, lines: list[str]) -> None:
    assert shown(text) == lines


def test_a_picture_keeps_colours_places_and_times() -> None:
    screen = Screen()
    screen.write("任务 \x1b[32m<ok>\x1b[0m\n", 1.5)
    group = ElementTree.fromstring(picture(screen, "a & b"))[-1]
    assert group.attrib["style"] == "animation-delay:1.50s"
    wide, green = group
    assert (wide.text, wide.attrib["textLength"]) == ("任务", f"{4 * 8.4:g}")
    assert (green.text, green.attrib["x"]) == ("<ok>", f"{16 + 5 * 8.4:g}")
    assert "fill:" in green.attrib["style"]


@pytest.mark.parametrize("name", ["first-job.svg", "first-job.zh.svg"])
def test_the_pictures_of_the_readme_show_these_commands(name: str) -> None:
    root = ElementTree.parse(IMAGES / name).getroot()
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for line in "\n".join(f"$ {command}" for command in COMMANDS).splitlines():
        assert line in texts
    assert not any("/tmp/" in text for text in texts)
