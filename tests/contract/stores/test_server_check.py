"""What `server check` says of the door of private storage; a real S3 server behind it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddlecloud.server.settings import Settings
from paddlecloud.server.settings.check_command import Level, check


def found(home: Path, **changes: Any) -> list[tuple[str, Level]]:
    settings = Settings(home=home)
    private = replace(settings.private_store, **changes)
    findings = check(replace(settings, private_store=private), {}, datetime.now(UTC))
    return [(each.code, each.level) for each in findings if each.subject == "private_store"]


def test_a_door_where_an_object_store_answers(tmp_path: Path, s3_settings: dict[str, str]) -> None:
    door = s3_settings["endpoint"]
    assert found(tmp_path, door=door) == [("check_door", Level.OK)]
    assert found(tmp_path, door=door, enabled=False) == []


def test_a_door_where_nobody_answers_is_a_warning(tmp_path: Path) -> None:
    assert found(tmp_path, door="http://127.0.0.1:9") == [("store_unreachable", Level.WARNING)]


def test_a_door_of_many_regions_is_not_tried(tmp_path: Path) -> None:
    assert found(tmp_path) == []
