"""Files and folders of the repository that a page names exist.

Checked are inline code and `text` blocks: paths that end in `.py`, `.md`, `.sh`, `.toml` or `/` and
start with a top-level folder of the repository, a package of `src/paddlecloud`, or a part of the
server. Placeholders (`<name>.py`) and paths on a user's disk are not.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, TOP, name_of

SOURCE = TOP / "src" / "paddlecloud"
ROOTS = (TOP, SOURCE, SOURCE / "server")
# Folders of the repository whose names also occur in paths on a user's disk.
AMBIGUOUS = frozenset(
    {"agent", "bin", "server", "logs", "exec", "examples", "data", "model", "files"}
)
INLINE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"(?<![\w./$~<-])(?:[a-z_0-9-]+/)+(?:[a-z_0-9-]+\.(?:py|md|sh|toml))?(?![\w/<*])")


def missing(text: str) -> list[str]:
    """Paths that a page names and that do not exist, in their order."""
    named = INLINE.findall(text) + BLOCK.findall(text)
    paths = [path for span in named for path in PATH.findall(span)]
    return [path for path in paths if is_ours(path) and not exists(path)]


def is_ours(path: str) -> bool:
    first, _, rest = path.partition("/")
    if path.endswith(".py"):
        return any((root / first).is_dir() for root in ROOTS)
    return bool(rest) and first not in AMBIGUOUS and any((root / first).is_dir() for root in ROOTS)


def exists(path: str) -> bool:
    return any((root / path).exists() for root in ROOTS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_planted_missing_paths_are_found() -> None:
    page = "`cli/main.py` `cli/no.py` `cli/<name>.py`\n```text\n 1 net/http1.py, net/gone/\n```\n"
    assert missing(page) == ["cli/no.py", "net/gone/"]
