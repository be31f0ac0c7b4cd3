"""The files of a backup: a directory with a manifest and the checksum of every other file.

manifest.json      what it is a backup of, and the checksum of SHA256SUMS; written last
SHA256SUMS         every other file, as the program sha256sum writes and checks it
database.sqlite    or database.pgdump, of pg_dump
server/            keys of the server; server.toml, the settings in the home
store/             the files of the store, at their paths
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from paddlecloud.messages import render
from paddlecloud.model.errors import Refused
from paddlecloud.model.units import format_size
from paddlecloud.stores.directory.safe_open import Tree

FORMAT = 1
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
DATABASES = {"sqlite": "database.sqlite", "postgresql": "database.pgdump"}
KEYS = ("credentials.json", "server.key")
"""Of the directory of the server, in the order in which they are restored: credentials without a
database keep a server from starting."""
SETTINGS = "server.toml"
STORE = "store"
PROGRESS_SECONDS = 10.0
_CHUNK = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Manifest:
    format: int = FORMAT
    version: str
    """Of the program that wrote it."""
    created_at: str
    """When the database was copied: ISO 8601."""
    database: str
    """sqlite or postgresql"""
    store: str
    """directory or s3"""
    blobs: bool
    """Whether the files of the store are in it."""
    files: int
    bytes: int
    sums: str
    """SHA-256 of SHA256SUMS."""

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.created_at)


@dataclass(kw_only=True)
class Progress:
    """Reports every few seconds how much was done, on stderr."""

    code: str
    """Of the message."""
    lang: str
    files: int = 0
    bytes: int = 0
    reported_at: float = field(default_factory=time.monotonic)

    def add(self, size: int) -> None:
        self.files += 1
        self.bytes += size
        if time.monotonic() - self.reported_at >= PROGRESS_SECONDS:
            self.reported_at = time.monotonic()
            facts = {"files": self.files, "size": format_size(self.bytes)}
            sys.stderr.write(render(self.code, facts, self.lang) + "\n")


def write_manifest(directory: Path, manifest: Manifest) -> None:
    with (directory / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(directory: Path) -> Manifest:
    """Refused if this is no complete backup, or one of a newer program."""
    try:
        values = json.loads((directory / MANIFEST).read_text("utf-8"))
        newer = values["format"] > FORMAT
        manifest = None if newer else Manifest(**values)
    except (OSError, ValueError, TypeError, KeyError):
        raise Refused("backup_not_complete", path=str(directory), file=MANIFEST) from None
    if manifest is None:
        raise Refused("backup_newer", path=str(directory), version=str(values.get("version")))
    return manifest


def write_sums(directory: Path, sums: Mapping[str, str]) -> str:
    """Write SHA256SUMS from digests by path; its own SHA-256."""
    digest = hashlib.sha256()
    with (directory / SUMS).open("wb") as file:
        for path in sorted(sums):
            # As sha256sum does: a line with an escaped path begins with a backslash.
            escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
            mark = "\\" if escaped != path else ""
            line = os.fsencode(f"{mark}{sums[path]}  {escaped}\n")
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


def read_sums(directory: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Path and digest of every file; Refused if SHA256SUMS is not that of the manifest."""
    try:
        data = (directory / SUMS).read_bytes()
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != manifest.sums:
        raise Refused("backup_damaged", path=str(directory / SUMS))
    for line in data.split(b"\n")[:-1]:
        digest, _, path = os.fsdecode(line.lstrip(b"\\")).partition("  ")
        if line.startswith(b"\\"):
            path = _unescaped(path)
        yield path, digest


def copy_file(source: Path, target: Path) -> tuple[str, int]:
    """Copy what the file has now, with its time; its SHA-256 and size. A log may grow in between.
    FileNotFoundError if it is not, or no longer, a regular file."""
    digest, size = hashlib.sha256(), 0
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as reader:  # noqa: PTH123 - a descriptor
        found = os.fstat(fd)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with target.open("wb", buffering=0) as writer:
            while chunk := reader.read(min(_CHUNK, found.st_size - size)):
                digest.update(chunk)
                size += len(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[writer.write(rest) :]
    os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
    return digest.hexdigest(), size


def sync(directory: Path) -> None:
    """Return when everything in the file system of this directory is on the disk."""
    tree = Tree(directory)
    try:
        tree.sync_all()
    finally:
        tree.close()


def _unescaped(path: str) -> str:
    parts = path.split("\\\\")
    return "\\".join(part.replace("\\n", "\n").replace("\\r", "\r") for part in parts)
