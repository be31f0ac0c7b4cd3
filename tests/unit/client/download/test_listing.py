"""The rows of a listing, with what only the snapshot of a job tells."""

from __future__ import annotations

from typing import Any, cast

import pytest

from paddlecloud.client.download import listing
from paddlecloud.client.transport import Transport
from tests.unit.client.download_server import ENTRIES, JOB, Server


@pytest.mark.parametrize(
    ("prefix", "asked"), [(None, False), (f"/output/{JOB}/log", False), ("/", True), ("bin", True)]
)
def test_a_snapshot_is_asked_for_only_with_submitted_files(prefix: str | None, asked: bool) -> None:
    class Snapshots:
        def get(self, path: str, **_: object) -> dict[str, Any]:
            paths.append(path)
            return {"entries": ENTRIES}

    paths: list[str] = []
    rows = Server({"bin/run.sh": b"true\n"}).rows()
    got = listing.with_snapshot(cast("Transport", Snapshots()), JOB, prefix, rows)
    assert paths == ([f"/jobs/{JOB}/snapshot"] if asked else [])
    want = {None: 1, "/": 5, "bin": 1}.get(prefix, 1)
    assert len(got) == want


@pytest.mark.parametrize(
    ("prefix", "want"),
    [
        ("bin/latest", ["bin/latest"]),
        ("bin/la", ["bin/latest", "bin/latest.txt"]),
        ("run", ["run/"]),
        ("run/", ["run/"]),
        ("ru", ["run.sh", "run/", "runs/z"]),
        ("runs", ["runs/z"]),
    ],
)
def test_a_link_or_an_empty_directory_is_meant_by_its_name(prefix: str, want: list[str]) -> None:
    """Also with a server that gives all rows that begin so."""
    files = {"bin/latest.txt": b"1", "run.sh": b"2", "runs/z": b"3"}
    rows = [row for row in Server(files).rows() if row["path"].startswith(prefix)]
    others = ["bin", "dir"], ["bin/latest", "link"], ["run", "dir"], ["runs", "dir"]
    entries = [[path, kind, 0, "", 0, "latest.txt"] for path, kind in others]
    entries += [[path, "file", 1, "1" * 64, 0, ""] for path in files]

    class Snapshots:
        def get(self, path: str, **_: object) -> dict[str, Any]:
            return {"entries": entries}

    got = listing.with_snapshot(cast("Transport", Snapshots()), JOB, prefix, rows)
    assert [row["path"] for row in got] == want
