"""`admin verify` at a scripted server: pages are followed, added up, and what is bad is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddlecloud.cli.admin import verify
from paddlecloud.cli.main import main
from tests.unit.cli.scripted import ID, Captured
from tests.unit.client.fake_server import FakeServer, ok

ROUTE = "POST /api/v1/admin/verify"
PLACE = {"owner": "ann", "job": None, "after": "f" * 64, "offset": 0}


def damaged(path: str, kind: str = "submitted") -> dict[str, Any]:
    return {
        "kind": kind,
        "user_id": "ann",
        "sha256": "a" * 64,
        "size": 7,
        "paths": [path] if path else [],
        "jobs": [ID],
        "snapshots": [],
        "aside": "users/ann/damaged/a",
    }


def page(rows: list[dict[str, Any]], after: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"files": 2, "bytes": 1024, "damaged": rows, "next": after}


def test_a_sound_store_ends_well(server: FakeServer, capsys: Captured) -> None:
    server.routes[ROUTE] = [ok(page([]))]
    assert main(["admin", "verify"]) == 0
    assert capsys.readouterr().out == "read 2 files, 1.0 KiB: 0 damaged\n"
    assert server.seen[-1].json == {"user": None, "at": None}


def test_pages_are_followed_and_what_is_bad_is_named(
    server: FakeServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_OFTEN", 0.0)
    rows = [damaged("words\x1b[2J"), damaged("model", "output")]
    server.routes[ROUTE] = [ok(page(rows, PLACE)), ok(page([damaged("")]))]
    assert main(["admin", "verify", "--user=ann"]) == 1
    captured = capsys.readouterr()
    first, second, third, last = captured.out.splitlines()
    assert first.startswith("submitted file of ann: words")
    assert "\x1b" not in captured.out
    assert f"model is not what {ID} wrote" in second
    assert "a" * 64 in third
    assert last == "read 4 files, 2.0 KiB: 3 damaged"
    assert captured.err == "read 2 files, 1.0 KiB so far\n"
    asked = [seen.json for seen in server.seen if seen.path.endswith("/verify")]
    assert asked == [{"user": "ann", "at": None}, {"user": "ann", "at": PLACE}]


def test_json_names_only_so_many_and_counts_all(
    server: FakeServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_MOST", 3)
    pages = [page([damaged(str(n)), damaged(f"{n}x")], PLACE) for n in range(3)]
    server.routes[ROUTE] = [*map(ok, pages), ok(page([]))]
    assert main(["admin", "verify", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [row["paths"] for row in found.pop("damaged")] == [["0"], ["0x"], ["1"]]
    assert (found.pop("changed"), found.pop("changed_files")) == ([], 0)
    assert found == {"files": 8, "bytes": 4096, "damaged_files": 6}


def test_what_was_written_anew_is_named_and_no_failure(
    server: FakeServer, capsys: Captured
) -> None:
    server.routes[ROUTE] = [ok(page([]) | {"changed": [damaged("model", "output")]})]
    assert main(["admin", "verify"]) == 0
    told, last = capsys.readouterr().out.splitlines()
    assert "model was written anew since" in told
    assert last == "read 2 files, 1.0 KiB: 0 damaged"
