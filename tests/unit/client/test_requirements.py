"""The file of `--requirements` as it is read here: how it is written, and how long it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.client.submit import requirements_of
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.params import MAX_REQUIREMENTS_BYTES, parse_parameters

TEXT = "six==1.16.0  # 注释\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.replace("\n", "\r\n").encode("utf-16-be"),
        TEXT.encode("utf-32"),
        b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"),
    ],
)
def test_its_byte_order_mark_says_how_it_is_written(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes(data)
    assert requirements_of(str(path)) == TEXT


@pytest.mark.parametrize("data", [TEXT.encode("gbk"), TEXT.encode("utf-16-le"), b"\xff\xfea"])
def test_what_cannot_be_read_so_is_told_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes(data)
    with pytest.raises(Invalid) as caught:
        requirements_of(str(path))
    assert caught.value.code == "requirements_encoding"
    assert caught.value.params == {"path": str(path)}


@pytest.mark.parametrize("size", [MAX_REQUIREMENTS_BYTES + 1, 70_000, 2_000_000])
def test_one_that_is_too_long_is_told_with_its_own_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes(b"#" * size)
    with pytest.raises(Invalid) as caught:
        text = requirements_of(str(path))
        parse_parameters({"start_cmd": "true", "files": ".", "requirements": text})
    assert caught.value.code == "requirements_long"
    assert caught.value.params["size"] == size
