"""`admin verify` at a scripted server: pages are followed, added up, and what is bad is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddlecloud.cli.admin import verify
from paddlecloud.cli.main import main
from paddlecloud.client import follow
from tests.unit.cli.scripted import ID, Captured
from tests.unit.client.fake_server import Answer, FakeServer, error, ok

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


@pytest.mark.parametrize(("count", "words"), [(2, "2 files"), (1, "1 file")])
def test_a_sound_store_ends_well(
    server: FakeServer, capsys: Captured, count: int, words: str
) -> None:
    server.routes[ROUTE] = [ok(page([]) | {"files": count})]
    assert main(["admin", "verify"]) == 0
    assert capsys.readouterr().out == f"read {words}, 1.0 KiB: 0 damaged\n"
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
    assert found == {"files": 8, "bytes": 4096, "damaged_files": 6, "complete": True}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "sleep", lambda seconds: None)


@pytest.mark.usefixtures("quick")
def test_a_server_that_goes_away_meanwhile_is_waited_for(
    server: FakeServer, capsys: Captured
) -> None:
    away = error(503, "Retry", "store_away", "away for a moment")
    pages = [ok(page([damaged("a")], PLACE)), Answer(drop=0), *[away] * 9, ok(page([damaged("b")]))]
    server.routes[ROUTE] = pages
    assert main(["admin", "verify"]) == 1
    assert capsys.readouterr().out.endswith("read 4 files, 2.0 KiB: 2 damaged\n")
    asked = [seen.json["at"] for seen in server.seen if seen.path.endswith("/verify")]
    assert (asked[0], {json.dumps(at) for at in asked[1:]}) == (None, {json.dumps(PLACE)})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("words", [["--json"], []], ids=["json", "lines"])
def test_what_was_found_before_it_broke_is_told(
    server: FakeServer, capsys: Captured, words: list[str]
) -> None:
    gone = error(403, "Forbidden", "admin_only", "you are no admin any more")
    server.routes[ROUTE] = [ok(page([damaged("a")], PLACE)), gone]
    assert main(["admin", "verify", *words]) == 1
    captured = capsys.readouterr()
    if words:
        found = json.loads(captured.out)
        assert (found["damaged_files"], found["complete"]) == (1, False)
        assert [row["paths"] for row in found["damaged"]] == [["a"]]
    else:
        assert captured.out.startswith("submitted file of ann: a,")
        assert "verification is incomplete: read 2 files" in captured.err
        assert "admin audit" in captured.err
    assert "no admin any more" in captured.err


def test_who_may_not_is_told_no_more(server: FakeServer, capsys: Captured) -> None:
    server.routes[ROUTE] = [error(403, "Forbidden", "admin_only", "you are no admin")]
    assert main(["admin", "verify", "--json"]) == 1
    assert capsys.readouterr().out == ""


def test_what_was_written_anew_is_named_and_no_failure(
    server: FakeServer, capsys: Captured
) -> None:
    server.routes[ROUTE] = [ok(page([]) | {"changed": [damaged("model", "output")]})]
    assert main(["admin", "verify"]) == 0
    told, last = capsys.readouterr().out.splitlines()
    assert "model was rewritten after" in told
    assert last == "read 2 files, 1.0 KiB: 0 damaged"
