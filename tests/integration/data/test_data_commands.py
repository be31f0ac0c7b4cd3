"""`paddlecloud data …` as a person calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.data import recordio
from tests.unit.data.vectors import HELLO, V4, V5, chunk, fluid_chunk


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "good-0").write_bytes(V4)
    (tmp_path / "good-1").write_bytes(V5)
    (tmp_path / "bad").write_bytes(b"junk" + V4 + chunk([b"z"], checksum=1) + V5)
    (tmp_path / "bad-once").write_bytes(b"junk" + V4)
    (tmp_path / "old").write_bytes(fluid_chunk(HELLO))
    (tmp_path / "text").write_bytes("一\r\ntwo\n\n".encode())
    return tmp_path


def run(directory: Path, *words: str, code: int = 0, lang: str = "en") -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "paddlecloud", "data", *words],
        cwd=directory,
        env={
            "PADDLECLOUD_HOME": str(directory / "home"),
            "PADDLECLOUD_LANG": lang,
            "PYTHONUTF8": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done
    return done.stdout, done.stderr


def run_json(directory: Path, *words: str, code: int = 0) -> Any:
    return json.loads(run(directory, *words, "--json", code=code)[0])


def test_looking_at_files(directory: Path) -> None:
    out, _ = run(directory, "ls", "good-*")
    assert out == "3\t2\t64 B\tgood-0\n3\t2\t100 B\tgood-1\n"
    assert run_json(directory, "ls", "good-0") == [
        {"path": "good-0", "records": 3, "chunks": 2, "bytes": 64}
    ]
    assert run(directory, "head", "-n", "2", "good-*")[0] == "0\t5\tHello\n1\t6\tWorld!\n"
    (facts,) = run_json(directory, "stat", "good-1")
    assert (facts["smallest_record"], facts["largest_record"], facts["compressors"]) == (
        1,
        6,
        "snappy",
    )
    assert run(directory, "head", "old", "--layout=fluid")[0].startswith("0\t5\tHello")


def test_checking_and_repairing(directory: Path) -> None:
    out, _ = run(directory, "verify", "good-0")
    assert out == "good-0: valid, 3 records in 2 chunks\n"
    out, _ = run(directory, "verify", "bad", code=1, lang="zh")
    assert "bad：第 2 块（偏移 68）" in out
    (facts,) = run_json(directory, "verify", "bad", code=1)
    assert [damage["reason"] for damage in facts["damages"]] == ["magic", "checksum"]
    out, _ = run(directory, "repair", "bad")
    assert "6 intact records written to bad.repaired, 2 damaged places skipped" in out
    assert (directory / "bad.repaired").read_bytes() == V4 + V5
    out, _ = run(directory, "verify", "bad-once", code=1)
    assert "bad-once: damaged in 1 place, 3 records are intact" in out
    out, _ = run(directory, "repair", "bad-once")
    assert out.endswith("bad-once.repaired, 1 damaged place skipped\n")
    run(directory, "repair", "--in_place", "bad")
    run(directory, "verify", "bad")
    run(directory, "repair", "old", "--layout=fluid", "--output=new")
    assert list(recordio.Reader(directory / "new")) == HELLO


def test_making_files(directory: Path) -> None:
    made = run_json(
        directory, "convert", "good-0", "good-1", "--num_shards=2", "--output_path=out", "--seed=1"
    )
    assert made == {"records": 6, "files": ["out/data-00000-of-00001", "out/data-00001-of-00001"]}
    found = [record for path in made["files"] for record in recordio.Reader(directory / path)]
    assert sorted(found) == sorted([*HELLO, b"x"] * 2)
    out, told = run(directory, "split", "text", "--format=lines", "--line_count=2", "--suffix=t-%d")
    assert (out, told) == ("t-0\nt-1\n", "3 records in 2 files\n")
    assert list(recordio.Reader([directory / "t-0", directory / "t-1"])) == [
        "一".encode(),
        b"two",
        b"",
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ls"], 2, "needs at least one file"),
        (["ls", "nothing*"], 1, "no file matches nothing*"),
        (["ls", "text"], 1, "no chunk begins here"),
        (["head", "old"], 1, "Paddle Fluid"),
        (["head", "home/.."], 1, "cannot use home/.."),
        (["split", "good-0"], 2, "needs --line_count"),
        (["split", "good-0", "--line_count=0"], 2, "--line_count=0 would write nothing"),
        (["split", "no", "--line_count=1", "--format=lines"], 1, "give the path of a text file"),
        (["split", "no", "--line_count=1"], 1, "give the path of a RecordIO file"),
        (["convert", "good-0", "--output_path=o", "--num_shards=0"], 2, "--num_shards=0 would"),
        (["convert", "good-0", "--output_path=o", "--line_count=0"], 2, "--line_count=0 would"),
        (
            ["split", "good-0", "--line_count=1", "--suffix=x"],
            2,
            "no placeholder for the file number",
        ),
        (["convert", "good-0", "--output_path=o"], 2, "--num_shards and --line_count"),
        (["convert", "good-0", "--num_shards=1"], 2, "needs --output_path"),
        (["repair", "good-0", "good-1", "--output=x"], 2, "2 files are to be repaired"),
    ],
)
def test_wrong_calls_are_told_in_a_sentence(
    directory: Path, words: list[str], code: int, said: str
) -> None:
    (directory / "home").mkdir()
    out, told = run(directory, *words, code=code)
    assert said in told
    assert out == ""
    assert len(told.splitlines()) == 1


def test_a_reader_that_went_away_is_no_fault_of_the_file(directory: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "paddlecloud", "data", "head", "good-0"],
            cwd=directory,
            env={"PADDLECLOUD_HOME": str(directory / "home"), "PYTHONUNBUFFERED": "1"},
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
