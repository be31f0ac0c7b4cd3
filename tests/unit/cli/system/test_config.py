"""Where a value came from is told in the reader's language, and to a program as it is."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from paddlecloud.cli.context import Context
from paddlecloud.cli.system import config
from paddlecloud.messages.cli import say


@pytest.mark.parametrize(
    ("lang", "on_terminal", "want"),
    [("zh", True, "默认"), ("en", True, "default"), ("zh", False, "default")],
)
def test_a_default_is_called_so(lang: str, on_terminal: bool, want: str) -> None:
    shown: list[Sequence[str]] = []
    out = SimpleNamespace(
        json=False,
        on_terminal=on_terminal,
        text=lambda code: say(code, lang),
        table=lambda _header, rows: shown.extend(rows),
    )
    rows = [("lang", lang, "PADDLECLOUD_LANG"), ("main.debug", "0", "default")]
    context = SimpleNamespace(out=out, config=SimpleNamespace(rows=lambda: rows))
    assert config.show({"origin": True}, cast(Context, context)) == 0
    assert [row[2] for row in shown] == ["PADDLECLOUD_LANG", want]
