"""The settings that pages show are settings: the server's own reader takes every block of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.model.errors import ConfigError
from paddlecloud.server.settings import read_settings
from tests.docs.pages import PAGES, Block, blocks, name_of

SECRET = "0123456789abcdef" * 4
#: What `{ env = … }` and `{ file = … }` on the pages are taken from.
ENVIRON = {
    "PADDLECLOUD_DATABASE": "postgresql://cloud:secret@db.example/cloud",
    "PADDLECLOUD_KEY": SECRET,
    "PADDLECLOUD_SMTP_PASSWORD": SECRET,
    "PADDLECLOUD_STORE_AK": SECRET,
}
FILES = {"server.key": SECRET, "store.sk": SECRET}


def shown() -> list[tuple[str, Block]]:
    return [
        (name_of(page), block)
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.info == "toml"
    ]


def read(folder: Path, text: str) -> None:
    for name, value in FILES.items():
        (folder / name).write_text(value)
    (folder / "server.toml").write_text(text)
    read_settings(folder, folder / "server.toml", ENVIRON)


@pytest.mark.parametrize(
    ("page", "block"), shown(), ids=[f"{page}:{block.line}" for page, block in shown()]
)
def test_a_block_of_settings_is_taken(page: str, block: Block, tmp_path: Path) -> None:
    try:
        read(tmp_path, block.text)
    except ConfigError as error:
        pytest.fail(f"{page}:{block.line}: {error}")


def test_there_are_such_blocks_and_a_wrong_one_is_found(tmp_path: Path) -> None:
    assert len(shown()) >= 5
    with pytest.raises(ConfigError):
        read(tmp_path, "[plans.free]\nminuts_a_day = 1\n")
