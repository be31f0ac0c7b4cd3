"""`admin restore`: fills an empty home from a backup.

Every file of the backup is checked before anything is written. A file in the directory of the
server marks a home that is being filled: no server starts there, and the same restore may be
repeated until it succeeds. The database comes last.

What ran when the backup was taken is counted as lost: another machine may have finished it, or may
still run it. Agents that come back in contact are ordered to stop it. Numbers of fences and orders
continue far above those of the backup, because the lost server went on counting after it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from paddlecloud.db import open_database
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.copies import load_dump
from paddlecloud.db.tables import attempts, jobs, leases, servers
from paddlecloud.db.tables.counters import next_number
from paddlecloud.messages import render
from paddlecloud.model.diagnosis.outcome import RESTORED
from paddlecloud.model.errors import ConfigError, Refused
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Reason, Replica, ReplicaState
from paddlecloud.model.jobs.references import is_job_id
from paddlecloud.server.lost_database import DATABASE, RESTORING, USERS, database_of, has_entries
from paddlecloud.server.services.accounts.embedded_accounts import write_private
from paddlecloud.server.services.admin._backup_format import (
    DATABASES,
    KEYS,
    SETTINGS,
    STORE,
    Manifest,
    Progress,
    copy_file,
    read_manifest,
    read_sums,
    sync,
)
from paddlecloud.server.services.placement import release
from paddlecloud.server.settings import Settings, read_with_origins
from paddlecloud.stores.directory.store import CONTENT

COUNTERS = ("fence", "order")
SKIPPED_NUMBERS = 2**32
OF_JOBS = ("output", "commands", "listings")
"""Directories of a user that have one directory for each job."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    jobs: int
    lost: int
    """Jobs that were running."""


def checked(backup: Path, progress: Progress) -> tuple[Manifest, list[str]]:
    """The manifest and the paths of a complete backup without a damaged file; else Refused."""
    manifest = read_manifest(backup)
    paths = []
    for path, expected in read_sums(backup, manifest):
        try:
            with (backup / path).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                progress.add(file.tell())
        except FileNotFoundError:
            raise Refused("backup_not_complete", path=str(backup), file=path) from None
        if digest != expected:
            raise Refused("backup_damaged", path=str(backup / path))
        paths.append(path)
    return manifest, paths


def restore(
    settings: Settings,
    backup: Path,
    manifest: Manifest,
    paths: list[str],
    environ: Mapping[str, str],
    progress: Progress,
) -> Restored:
    """Fill the home from a checked backup, under the lock of the home."""
    _check_settings(settings, manifest)
    server_dir = settings.server_dir
    server_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(server_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("restore_server_runs", home=str(settings.home)) from None
        _begin(settings, backup, manifest)
        _copy_store(settings, backup, paths, progress)
        for name in KEYS:
            if f"server/{name}" in paths:
                write_private(server_dir / name, (backup / "server" / name).read_text("utf-8"))
        if f"server/{SETTINGS}" in paths and not (settings.home / SETTINGS).exists():
            copy_file(backup / "server" / SETTINGS, settings.home / SETTINGS)
        restored = _restore_database(settings, backup, manifest, environ)
        sync(settings.store_dir)
        sync(server_dir)
        (server_dir / RESTORING).unlink()
        return restored
    finally:
        os.close(lock)


def main(
    home: Path,
    settings_file: Path | None,
    environ: Mapping[str, str],
    *,
    backup: Path,
    as_json: bool,
    lang: str,
) -> int:
    """Without settings of its own the home gets those of the backup."""
    manifest, paths = checked(backup, Progress(code="restore_checked", lang=lang))
    kept = backup / "server" / SETTINGS
    if settings_file is None and not (home / SETTINGS).exists() and kept.exists():
        settings, _ = read_with_origins(home, home / SETTINGS, environ, source=kept)
    else:
        settings, _ = read_with_origins(home, settings_file, environ)
    try:
        progress = Progress(code="backup_so_far", lang=lang)
        restored = restore(settings, backup, manifest, paths, environ, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        path = str(error.filename or settings.home)
        raise Refused("restore_failed", path=path, reason=reason) from error
    facts = {"home": str(settings.home), "jobs": restored.jobs, "lost": restored.lost}
    if as_json:
        sys.stdout.write(json.dumps(facts | {"created_at": manifest.created_at}) + "\n")
    else:
        facts["at"] = shown_time(settings, manifest)
        command = f"PADDLECLOUD_HOME={shlex.quote(str(home))} paddlecloud server start"
        if settings_file is not None:
            command += f" --config {shlex.quote(str(settings_file))}"
        facts["command"] = command
        sys.stdout.write(render("restore_done", facts, lang) + "\n")
    return 0


def shown_time(settings: Settings, manifest: Manifest) -> str:
    return f"{manifest.at.astimezone(settings.zone):%Y-%m-%d %H:%M:%S %Z}"


def _check_settings(settings: Settings, manifest: Manifest) -> None:
    """Refused if the settings name another kind of database or store."""
    found = "postgresql" if settings.database.url else "sqlite"
    for name, ours, theirs in (
        ("database", found, manifest.database),
        ("store", settings.store.kind, manifest.store),
    ):
        if ours != theirs:
            raise Refused("restore_other_kind", name=name, found=ours, expected=theirs)


def _begin(settings: Settings, backup: Path, manifest: Manifest) -> None:
    """Mark the home; Refused if it is not empty, unless this backup was being restored into it."""
    mark = settings.server_dir / RESTORING
    if mark.exists():
        begun = json.loads(mark.read_text("utf-8"))
        if begun["sums"] != manifest.sums:
            raise Refused("restore_other_backup", path=begun["path"], home=str(settings.home))
        return
    files = [settings.server_dir / name for name in (DATABASE, *KEYS)]
    used = [path for path in (*files, settings.agent_dir / "agent.json") if path.exists()]
    # With a backup without blobs the store is restored by other means, perhaps before this.
    if manifest.blobs and has_entries(settings.store_dir / USERS):
        used.append(settings.store_dir / USERS)
    if used:
        raise Refused("restore_home_used", home=str(settings.home), path=str(used[0]))
    if settings.database.url and _has_tables(settings):
        raise Refused("restore_database_used")
    write_private(mark, json.dumps({"path": str(backup), "sums": manifest.sums}))


def _has_tables(settings: Settings) -> bool:
    try:
        place = database_of(settings)
        open_database(place, now=datetime.now(UTC), must_exist=True).close()
    except ConfigError as error:
        if error.code != "database_lost":
            raise
        return False
    return True


def _copy_store(settings: Settings, backup: Path, paths: list[str], progress: Progress) -> None:
    root = settings.store_dir
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in paths:
        top, _, name = path.partition("/")
        if top == STORE:
            progress.add(copy_file(backup / path, root / name)[1])
            if name.split("/")[2:3] == ["blobs"]:
                (root / name).chmod(CONTENT)


def _restore_database(
    settings: Settings, backup: Path, manifest: Manifest, environ: Mapping[str, str]
) -> Restored:
    place = database_of(settings)
    copy = backup / DATABASES[manifest.database]
    final = None
    if isinstance(place, str):
        if not _has_tables(settings):
            load_dump(copy, place, environ)
    else:
        final, place = place, place.with_name(f"{place.name}.restoring")
        for ending in ("", "-wal", "-shm"):
            place.with_name(place.name + ending).unlink(missing_ok=True)
        copy_file(copy, place)
    at = shown_time(settings, manifest)
    with closing(open_database(place, now=datetime.now(UTC), must_exist=True)) as db:
        lost = db.write(lambda tx: _lose_running(tx, manifest.at, at))
        known = db.read(jobs.all_ids)
    _delete_unknown(settings.store_dir / USERS, known)
    if final is not None and isinstance(place, Path):
        place.with_name(f"{place.name}-reserve").unlink(missing_ok=True)
        place.rename(final)
    return Restored(jobs=len(known), lost=lost)


def _lose_running(tx: Tx, at: datetime, shown: str) -> int:
    """Count what ran as lost, at the time of the backup: later time is not charged."""
    servers.delete_all(tx)
    leases.break_leases(tx)
    for counter in COUNTERS:
        next_number(tx, counter, SKIPPED_NUMBERS)
    said = Reason(code=RESTORED, params={"at": shown})
    record = ExitRecord(cause=ExitCause.UNWATCHED, finished_at=at, said=said)

    def ended(replica: Replica) -> Replica:
        ran = replica.state is ReplicaState.RUNNING
        return replace(
            replica, exit=replace(record, started_at=replica.started_at) if ran else None
        )

    live = attempts.live_attempts(tx)
    for attempt in live:
        release.lose(tx, attempt, [ended(each) for each in attempt.replicas if not each.over])
    return len(live)


def _delete_unknown(users: Path, known: set[str]) -> None:
    """Delete files of jobs that began after the database was copied, or were deleted before."""
    for kind in OF_JOBS:
        for directory in users.glob(f"*/{kind}/*"):
            if directory.name not in known and is_job_id(directory.name):
                shutil.rmtree(directory)
