"""Which trees are kept: those that are whole. How they are made and used is tested with mounts."""

from __future__ import annotations

import json
from pathlib import Path

from paddlecloud.runtime import workspace
from paddlecloud.runtime.layers import NOTE
from paddlecloud.runtime.trees import Trees


def test_a_tree_that_is_being_made_is_nobody_elses_to_delete(tmp_path: Path) -> None:
    trees = Trees(tmp_path, workspace.Layer(), lambda _root, _tree: True, lambda _size: None)
    whole, half = tmp_path / "trees" / "abc.own", tmp_path / "trees" / "def.own.0123.part"
    for home in (whole, half):
        (home / "files").mkdir(parents=True)
    (whole / NOTE).write_text(json.dumps({"boot": "b", "size": 7}))
    kept = list(trees.kept())
    assert [size for _, size, _ in kept] == [7]
    for _, _, delete in kept:
        delete()
    assert not whole.exists()
    assert half.exists()
