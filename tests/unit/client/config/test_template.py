"""The client.conf that is written for somebody who has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.client.config.ini_file import write_main
from paddlecloud.client.config.resolve import resolve
from paddlecloud.client.config.template import documented_file


def test_it_has_the_four_documented_sections_with_their_comments() -> None:
    text = documented_file()
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("[")] == [
        "[main]", "[openapi]", "[bcc]", "[bos]",
    ]  # fmt: skip
    for number, line in enumerate(lines):
        if line.startswith("["):
            assert lines[number - 1].startswith("// "), line
    assert "// 免费使用时需要配置该部分的内容" in lines
    assert "// 付费使用时需要配置该部分的内容" in lines


def test_without_an_address_it_means_the_embedded_server(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    write_main(str(path), "ann", "A", "S", documented_file())
    config = resolve({"config": str(path)}, {})
    assert (config.embedded, config.user_id, config.ak, config.sk) == (True, "ann", "A", "S")
    assert config.warnings == []
    assert (config.values["bcc.host"].text, config.values["bos.ak"].text) == (
        "bcc.bj.baidubce.com", "",
    )  # fmt: skip


@pytest.mark.parametrize(
    "host",
    ["cloud.example.com", "https://cloud.example.com", "https://[::1]:8443", "http://10.0.0.1:443"],
)
def test_an_address_is_read_back_as_it_was(tmp_path: Path, host: str) -> None:
    given = resolve({"host": host, "ca_file": "/etc/ca.pem"}, {"HOME": str(tmp_path)})
    path = tmp_path / "client.conf"
    text = documented_file(given.host, str(given.port), given.scheme, given.ca_file)
    write_main(str(path), "ann", "A", "S", text)
    read = resolve({"config": str(path)}, {})
    for name in ("host", "port", "scheme", "ca_file"):
        assert getattr(read, name) == getattr(given, name), name


def test_a_file_that_is_there_keeps_everything_but_main(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text("[bos]\nak = mine\n")
    write_main(str(path), "ann", "A", "S", documented_file())
    want = "[bos]\nak = mine\n\n[main]\nuser_id = ann\nak = A\nsk = S\n"
    assert path.read_text() == want
