"""A server that gives the files of a job, with all of its faults, and downloads from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest

from paddlecloud.client.download import _presigned, engine, listing
from paddlecloud.client.download.engine import Result
from paddlecloud.client.transport import Transport
from paddlecloud.model.errors import Conflict, NotFound, Retry
from tests.unit.client.trees import NOW

JOB = "job-0650470e621f3688812ceda2079805f8"
WHERE = f"/jobs/{JOB}/files"
PIECE = 1000
LOG = f"output/{JOB}/log/trainer-0.log"
MODEL = f"output/{JOB}/rank-0/model"
LARGE = bytes(range(256)) * 20
FILES = {LOG: b"hello\n", MODEL: LARGE, f"output/{JOB}/rank-0/empty": b""}
#: Of a snapshot: path, kind, size, digest, whether it is executable, and where it leads.
ENTRIES = [
    ["bin", "dir", 0, "", 0, ""],
    ["empty", "dir", 0, "", 0, ""],
    ["bin/run.sh", "file", 5, "1" * 64, 1, ""],
    ["bin/text", "file", 5, "2" * 64, 0, ""],
    ["empty/inner", "dir", 0, "", 0, ""],
    ["latest", "link", 0, "", 0, "bin/run.sh"],
    ["empty/up", "link", 0, "", 0, "../bin"],
    ["nowhere", "link", 0, "", 0, "bin/gone"],
]


class Answer:
    """A body that may break off, and its headers."""

    def __init__(self, body: bytes, headers: Mapping[str, str], cut: int | None = None) -> None:
        self.headers = headers
        self._body = body
        self._cut = cut
        self._step = max(300, len(body) // 8)

    def read(self, size: int = -1) -> bytes:
        if self._cut is not None and self._cut <= 0:
            raise Retry("unknown_answer", status=502)
        most = len(self._body) if self._cut is None else self._cut
        piece = self._body[: min(size, self._step, most)]
        self._body = self._body[len(piece) :]
        self._cut = None if self._cut is None else self._cut - len(piece)
        return piece

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Server:
    """Files of a job, as GET /jobs/{job_id}/files/{path} gives them."""

    def __init__(self, files: Mapping[str, bytes], **digests: str) -> None:
        self.files = dict(files)
        self.versions = dict.fromkeys(files, "1")
        self.faults: list[str] = []
        self.lost: dict[str, int] = {}
        self.broken: set[str] = set()
        self.listed: dict[str, str] = {}
        self.asked: list[tuple[str, int]] = []
        self.appended: dict[str, str] = {}
        """Versions of files that only grow."""
        self.sent = 0
        self.pool = None
        self.meanwhile: Callable[[], None] = lambda: None

    def rows(self, *, known: bool = False) -> list[dict[str, Any]]:
        return [
            {
                "path": path,
                "size": len(content),
                "time": f"2020-05-17T10:15:3{self.versions[path]}Z",
                "sha256": hashlib.sha256(content).hexdigest() if known else None,
                **({"written_sha256": self.listed[path]} if path in self.listed else {}),
            }
            for path, content in self.files.items()
        ]

    def open(self, target: str, query: Mapping[str, Any], **_: object) -> Answer:
        path = unquote(target.removeprefix(f"{WHERE}/"))
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "unreachable" or path in self.broken:
            raise Retry("unknown_answer", status=503)
        if path in self.lost and int(query.get("offset", 0)) >= self.lost[path]:
            raise Conflict("private_file_changed", path=path, bos_url="b.bj.bcebos.com")
        if path not in self.files:
            raise NotFound("file_unknown", path=path, job_id=JOB)
        offset = int(query.get("offset", 0))
        self.asked.append((path, offset))
        whole = self.files[path]
        body = whole[offset : offset + int(query.get("length", len(whole)))]
        digest = hashlib.sha256(body).digest()
        if fault == "damage" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        version = f"{len(whole)}-2020-05-17T10:15:3{self.versions[path]}Z-0"
        version = self.appended.get(path, version)
        headers = {"content-length": str(len(body) + 32), "x-content-version": version}
        self.sent += len(body)
        self.meanwhile()
        cut = int(fault.removeprefix("cut ")) if fault.startswith("cut ") else None
        return Answer(body + digest, headers, cut)


def get(server: Server, directory: str = "output", **how: Any) -> Result:
    rows = how.pop("rows", None) or server.rows(known=how.pop("known", False))
    how = {"now": NOW, **how}
    job_id = how.pop("job_id", JOB)
    return engine.download(cast("Transport", server), job_id, rows, directory, **how)


def found(directory: Path | str) -> dict[str, bytes]:
    root = Path(directory)
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


WANT = {path.removeprefix("output/"): content for path, content in FILES.items()}


def edited(*names: str) -> dict[str, list[str]]:
    """What a result names that left files as a person has them."""
    return {"download_edited": [*names]}


def furnished(server: Server, entries: list[list[Any]]) -> list[dict[str, Any]]:
    return listing.with_entries(server.rows(), entries)


def interrupted(server: Server, answers: int, **how: Any) -> None:
    """A download that ends when so many more answers have come."""
    most = len(server.asked) + answers

    def meanwhile() -> None:
        if len(server.asked) > most:
            raise KeyboardInterrupt

    server.meanwhile = meanwhile
    with pytest.raises(KeyboardInterrupt):
        get(server, **how)
    server.meanwhile = lambda: None
    server.asked.clear()


def from_bucket(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], bytes]) -> None:
    """Have the addresses of a bucket give what is answered for a piece; no bytes: nothing."""

    def fetch(_: object, url: str, start: int, length: int, write: Callable[[bytes], None]) -> str:
        data = answer(start)
        write(data)
        return hashlib.sha256(data).hexdigest() if data else ""

    monkeypatch.setattr(_presigned, "fetch", fetch)


def pieces_until(end: int) -> Callable[[int], bytes]:
    return lambda start: LARGE[start : start + PIECE] if start < end else b""


LOCATIONS = {MODEL: "http://bucket/model"}
