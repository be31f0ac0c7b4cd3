"""Job files: what they may say, where their paths start, and what wins over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.job_file import MAX_BYTES, merged, read
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.params import parse_parameters


def a_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "job.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_has_the_parameters_of_submit_job(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        """
        job_name = "mnist"
        start_cmd = "python train.py"
        files = "code"
        wall_time = 02:00:00
        hang_timeout = "00:10:00"
        cpu = 2
        memory = "4G"
        watch_mode = true
        max_retries = 2
        retry_exit_codes = [101, 102]

        [env]
        EPOCHS = 10
        RATE = 0.5
        SHUFFLE = true
        NAME = "a b"
        """,
    )
    given = read(path)
    assert given["files"] == str(tmp_path / "code")
    spec = parse_parameters(given)
    want: dict[str, Any] = {
        "job_name": "mnist",
        "wall_time": 7200,
        "hang_timeout": 600,
        "cpu": 2.0,
        "memory": 4 * 10**9,
        "retry_exit_codes": "101,102",
        "env": {"EPOCHS": "10", "RATE": "0.5", "SHUFFLE": "true", "NAME": "a b"},
    }
    assert {name: spec[name] for name in want} == want


def test_what_is_given_beside_it_wins_and_variables_are_combined(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'start_cmd="a"\ncpu=1\nfile="x"\n[env]\nA="1"\nB="2"\n')
    found = merged(path, {"cpu": "4", "files": "here", "env": ["B=3", "C=4"]})
    assert found == {
        "start_cmd": "a",
        "cpu": "4",
        "files": "here",
        "env": {"A": "1", "B": "3", "C": "4"},
    }


def test_an_absolute_path_and_a_mark_of_notepad_are_taken(tmp_path: Path) -> None:
    path = a_file(tmp_path, b'\xef\xbb\xbffiles = "/data/code"\r\n')
    assert read(path) == {"files": "/data/code"}


@pytest.mark.parametrize(
    ("text", "code", "params"),
    [
        ("wal_time = 1", "job_file_key_near", {"name": "wal_time", "near": "wall_time"}),
        ("zzz = 1", "job_file_key", {"name": "zzz"}),
        ("dry_run = 1", "job_file_key", {"name": "dry_run"}),
        ("file = 'a'\nfiles = 'b'", "job_file_key_twice", {"name": "files"}),
        ("cpu = ", "job_file_syntax", {}),
        (b"cpu = '\xff'", "job_file_syntax", {}),
        (b"#" * (MAX_BYTES + 1), "job_file_long", {"limit": MAX_BYTES}),
    ],
)
def test_a_mistake_is_named_with_the_file(
    tmp_path: Path, text: str | bytes, code: str, params: dict[str, object]
) -> None:
    path = a_file(tmp_path, text)
    with pytest.raises(Invalid) as caught:
        read(path)
    assert caught.value.code == code
    assert caught.value.params["path"] == str(path)
    assert params.items() <= caught.value.params.items()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(Invalid) as caught:
            read(path)
        assert (caught.value.code, caught.value.params["path"]) == (
            "job_file_unreadable",
            str(path),
        )


def test_secrets_are_a_list_or_a_table_and_are_combined(tmp_path: Path) -> None:
    listed = a_file(tmp_path, 'secret = ["a", "b=B"]')
    assert merged(listed, {"secret": ["b=C", "d"]})["secret"] == {"a": "", "b": "C", "d": ""}
    table = a_file(tmp_path, '[secret]\na = ""\nb = "B"')
    assert merged(table, {})["secret"] == {"a": "", "b": "B"}
