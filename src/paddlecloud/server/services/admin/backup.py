"""`admin backup`: a consistent copy of database, keys and files, taken while the server works.

It runs on the server's machine as a process of its own, with or without a running server, and holds
up neither. Three steps give consistency without a lock:

1. The files of the store are copied.
2. The database is copied: one snapshot.
3. The files that are new or changed since are copied.

A blob or output that the snapshot references was stored before it, so step 1 or 3 finds it. If
garbage collection or a user deletes it after the snapshot, step 1 has it: only a job that was both
finished and deleted during the backup can lack its files. The files of jobs that run are those of
the moment in which they are copied; a log is at least as long as the database has it.

The copy is made in `TARGET.partial` and renamed when all of it is on the disk, so a backup that was
interrupted cannot be mistaken for a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from paddlecloud import __version__
from paddlecloud.db.engine.copies import check_copyable, copy_database
from paddlecloud.messages import render
from paddlecloud.model.errors import Refused
from paddlecloud.model.units import format_size
from paddlecloud.server.lost_database import USERS, database_of
from paddlecloud.server.services.admin._backup_format import (
    DATABASES,
    KEYS,
    MANIFEST,
    SETTINGS,
    STORE,
    SUMS,
    Manifest,
    Progress,
    copy_file,
    sync,
    write_manifest,
    write_sums,
)
from paddlecloud.server.settings import Settings
from paddlecloud.stores.directory.safe_open import TIMES

LEFT_OUT = ("locks", "lost+found")
"""Directories of the store that are of no use in another home, beside hidden ones (incomplete files
and those of the file system)."""
INCOMPLETE = ("uploads", "sending")
"""Directories of a user with records of uploads whose data is not copied."""
PARTIAL = ".partial"


@dataclass(kw_only=True)
class Backup:
    settings: Settings
    into: Path
    environ: Mapping[str, str]
    progress: Progress
    sums: dict[str, str] = field(default_factory=dict)
    """SHA-256 of every file, by its path in the backup."""
    bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    """Blobs whose content is not that of their name."""

    def run(self, *, blobs: bool) -> Manifest:
        """Copy everything; the manifest is for the caller to write, when it is on the disk."""
        place = database_of(self.settings)
        kind = "postgresql" if isinstance(place, str) else "sqlite"
        check_copyable(place)
        if blobs:
            self._copy_store()
        at = datetime.now(UTC)
        copy = self.into / DATABASES[kind]
        copy_database(place, copy, self.environ)
        with copy.open("rb") as file:
            self.sums[copy.name] = hashlib.file_digest(file, "sha256").hexdigest()
        self.bytes += copy.stat().st_size
        if blobs:
            self._copy_store()
        server_dir, home = self.settings.server_dir, self.settings.home
        for source in (*(server_dir / name for name in KEYS), home / SETTINGS):
            if source.exists():
                self._copy(source, f"server/{source.name}")
        return Manifest(
            version=__version__,
            created_at=at.isoformat(timespec="seconds"),
            database=kind,
            store=self.settings.store.kind,
            blobs=blobs,
            files=len(self.sums),
            bytes=self.bytes,
            sums=write_sums(self.into, self.sums),
        )

    def _copy_store(self) -> None:
        """Copy the files that the backup does not have as they are now."""
        root = self.settings.store_dir
        for path in _stored(root):
            source, name = root / path, f"{STORE}/{path}"
            with suppress(FileNotFoundError):  # deleted or moved since
                if name not in self.sums or _differ(source, self.into / name):
                    self._copy(source, name)

    def _copy(self, source: Path, name: str) -> None:
        target = self.into / name
        before = target.stat().st_size if name in self.sums else 0
        self.sums[name], size = copy_file(source, target)
        self.bytes += size - before
        parts = name.split("/")
        if parts[0] == STORE and parts[3:4] == ["blobs"] and parts[-1] != self.sums[name]:
            self.damaged.append(name)
        self.progress.add(size)


def main(
    settings: Settings,
    settings_file: Path | None,
    environ: Mapping[str, str],
    *,
    target: Path,
    blobs: bool,
    as_json: bool,
    lang: str,
) -> int:
    """Make the backup; 1 if it has damaged blobs, so that a script keeps an older one."""
    _check_target(settings, target)
    progress = Progress(code="backup_so_far", lang=lang)
    try:
        with _partial(target) as into:
            backup = Backup(settings=settings, into=into, environ=environ, progress=progress)
            manifest = backup.run(blobs=blobs)
            sync(into)
            write_manifest(into, manifest)
            sync(into)
            into.rename(target)
        sync(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Refused("backup_failed", path=str(error.filename or target), reason=reason) from error
    facts = {"path": str(target), "files": manifest.files, "bytes": manifest.bytes}
    if as_json:
        more = {"created_at": manifest.created_at, "damaged": backup.damaged}
        sys.stdout.write(json.dumps(facts | more) + "\n")
    else:
        size = format_size(manifest.bytes)
        sys.stdout.write(render("backup_done", facts | {"size": size}, lang) + "\n")
    elsewhere = settings_file is not None and settings_file != settings.home / SETTINGS
    left_out = [str(settings_file)] if elsewhere else []
    left_out += ["key"] if settings.key else []
    for line in (
        render("backup_left_out", {"names": ", ".join(left_out)}, lang) if left_out else "",
        render("backup_of_damaged", {"count": len(backup.damaged)}, lang) if backup.damaged else "",
    ):
        sys.stderr.write(line + "\n" if line else "")
    return 1 if backup.damaged else 0


def _check_target(settings: Settings, target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise Refused("backup_exists", path=str(target))
    if not target.parent.is_dir():
        raise Refused("backup_parent_missing", path=str(target.parent))
    if target.parent.resolve().is_relative_to(settings.store_dir.resolve()):
        raise Refused("backup_in_store", path=str(target), store=str(settings.store_dir))


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """The directory to write into, empty. It is deleted after an error; what a killed backup left
    is deleted by the next one of the same name."""
    into = target.with_name(target.name + PARTIAL)
    into.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("backup_runs", path=str(into)) from None
        names = {path.name for path in into.iterdir()}
        if not names <= {*DATABASES.values(), "server", STORE, SUMS, MANIFEST}:
            raise Refused("backup_exists", path=str(into))
        try:
            _empty(into)
            yield into
        except BaseException:
            shutil.rmtree(into, ignore_errors=True)
            raise
    finally:
        os.close(fd)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _stored(root: Path) -> Iterator[str]:
    """Paths of the files in the store; files of a directory before those below it, because a log
    moves downwards when its job is tried again."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    tops = [path.name for path in root.iterdir()] if root.exists() else []
    for top in sorted(tops):
        if top in LEFT_OUT or (top.startswith(".") and top != TIMES):
            continue
        for directory, below, names in os.walk(root / top, onerror=failed):
            where = Path(directory).relative_to(root)
            if where.parent == Path(USERS):
                below[:] = [name for name in below if name not in INCOMPLETE]
            for name in names:
                if not (Path(directory) / name).is_symlink():
                    yield f"{where}/{name}"


def _differ(source: Path, copy: Path) -> bool:
    now, then = source.stat(), copy.stat()
    return (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns)
