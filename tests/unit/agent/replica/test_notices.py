"""What is added to the log of a job that is over: once, and on a line of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.replica import notices, records


def test_links_that_lead_out_are_named_and_nothing_else_is(tmp_path: Path) -> None:
    place = tmp_path / "root" / "output"
    (place / "sub").mkdir(parents=True)
    (tmp_path / "big.bin").write_bytes(b"big")
    (place / "good").write_bytes(b"good")
    (place / "again").symlink_to("good")
    (place / "model").symlink_to(tmp_path / "big.bin")
    (place / "sub" / "all").symlink_to(tmp_path)
    (place / "nowhere").symlink_to(place / "missing")
    passed = scan.Skipped()
    found = [each.path for each in scan.scan(tmp_path / "root", passed)]
    assert found == ["again", "good"]
    assert passed.outside == ["output/model", "output/sub/all"]
    assert passed.special == ["output/nowhere"]


def test_few_of_many_links_are_shown_and_none_can_break_the_line() -> None:
    said = notices.output_lines("output_links_outside", "r", ["a\nb\x1b", *"cdefg"])
    assert said.count("\n") == 2
    assert "a?b?, c, d, e, f (+1); copy the files" in said
    assert said.splitlines()[1].startswith(
        "[paddlecloud] 以下链接指向 OUTPUT_PATH 或 LOCAL_LOG_PATH 之外"
    )


def test_a_directory_that_is_a_link_itself_is_called_by_its_variable() -> None:
    said = notices.output_lines("output_links_outside", "j.1.trainer-0", ["output", "log", "log/l"])
    assert ": OUTPUT_PATH, LOCAL_LOG_PATH, log/rank-0/l; copy" in said
    assert notices.output_lines("output_links_outside", "r", []) == ""


@pytest.mark.parametrize(("log", "between"), [(b"", b""), (b"end\n", b""), (b"no end", b"\n")])
def test_it_is_said_once_and_on_its_own_line(tmp_path: Path, log: bytes, between: bytes) -> None:
    path = tmp_path / records.STDOUT
    if log:
        path.write_bytes(log)
    for _ in range(2):
        notices.append_once(tmp_path, "[paddlecloud] gone\n")
    assert path.read_bytes() == log + between + b"[paddlecloud] gone\n"
