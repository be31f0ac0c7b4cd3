"""Offline check of the stored files: `paddlecloud admin verify`.

It runs on the server's machine with the server's settings, whether the server runs or not. It reads
every blob that a snapshot in the database references, and every output that a job which has ended
has listed, and compares their SHA-256. Without `repair` it changes nothing. With `repair` a damaged
blob is moved to `users/<user>/damaged`, and no new job may use the snapshots that reference a
damaged or missing one: the next submit uploads it again. Outputs stay where they are. Files in the
buckets of users are not read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from paddlecloud.db import open_database
from paddlecloud.db.engine.sqlite import is_missing
from paddlecloud.db.tables import jobs, snapshots, users
from paddlecloud.messages import render
from paddlecloud.model.errors import NotFound, Refused
from paddlecloud.model.jobs.job import Job
from paddlecloud.model.units import format_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.lost_database import database_of
from paddlecloud.server.open_store import open_store
from paddlecloud.server.services.files import job_files
from paddlecloud.server.services.files.snapshots import blob_path
from paddlecloud.server.services.transfer.open_uploads import unchecked
from paddlecloud.server.settings import Settings
from paddlecloud.stores.base import CanMove, Stat
from paddlecloud.stores.directory.safe_open import shown
from paddlecloud.stores.logs.log_store import LogStore

DAMAGED, MISSING, CHANGED = "damaged", "missing", "changed"
"""Problems of a file; one that was rewritten after its job listed it is changed, not damaged."""
PROGRESS_SECONDS = 10.0
MAX_LISTED = 20
"""Paths, jobs and snapshots that are named for one blob."""
JOBS_PAGE = 50
UNREADABLE = frozenset(
    (errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO)
)
"""Errors of a disk or file system that cannot return the bytes. Any other ends the check: it is
about this process, not about the file."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    problem: str
    kind: str
    """submitted or output"""
    user_id: str
    sha256: str
    """Of what was stored."""
    size: int
    """Bytes that are stored now."""
    paths: list[str]
    """The names that the user knows."""
    jobs: list[str]
    snapshots: list[str] = field(default_factory=list)
    aside: str = ""
    """The new path of a damaged blob."""


@dataclass(kw_only=True)
class Check:
    """One run over the files of all users, or of one."""

    deps: Deps
    repair: bool = False
    files: int = 0
    bytes: int = 0

    def run(self, user: str | None = None) -> Iterator[Finding | None]:
        """What is wrong, as it is found; None after each file that is as it should be."""
        known = sorted(self.deps.db.read(users.user_ids))
        if user is not None and user not in known:
            raise NotFound("user_unknown", user_id=user[:100])
        for owner in known if user is None else [user]:
            yield from self._blobs(owner)
            yield from self._outputs(owner)

    def _blobs(self, owner: str) -> Iterator[Finding | None]:
        db = self.deps.db
        referenced: set[str] = set()
        for snapshot_id in db.read(partial(snapshots.ids_by_use, owner=owner)):
            digests = db.read(partial(snapshots.get_digests, owner=owner, snapshot_id=snapshot_id))
            referenced |= digests or set()
        for sha256 in sorted(referenced):
            stored, digest = self._read(blob_path(owner, sha256))
            if digest == sha256 or sha256 in unchecked(self.deps, owner):
                yield None
                continue
            finding = self._blob_finding(owner, sha256, stored)
            if finding is not None and self.repair:
                finding = self._repaired(finding)
            yield finding

    def _blob_finding(self, owner: str, sha256: str, stored: Stat | None) -> Finding | None:
        """None if the blob was deleted or replaced since, or if a missing one is not needed."""
        db = self.deps.db
        if self.deps.store.stat(blob_path(owner, sha256)) != stored:
            return None
        ids = db.read(lambda tx: snapshots.naming(tx, owner, sha256, MAX_LISTED))
        paths: dict[str, None] = {}
        needed: list[str] = []
        in_use = False
        for each in ids:
            snapshot = db.read(partial(snapshots.get_snapshot, owner=owner, snapshot_id=each))
            for entry in snapshot.entries if snapshot else ():
                if entry.sha256 == sha256:
                    paths[shown(entry.path)] = None
            of_snapshot = partial(snapshots.jobs_of, snapshot_id=each, limit=MAX_LISTED)
            needed += db.read(partial(of_snapshot, owner=owner))
            in_use |= bool(db.read(partial(snapshots.last_use, owner=owner, snapshot_id=each)))
        if not ids or (stored is None and not needed and not in_use):
            return None
        return Finding(
            problem=DAMAGED if stored else MISSING,
            kind="submitted",
            user_id=owner,
            sha256=sha256,
            size=stored.size if stored else 0,
            paths=list(paths)[:MAX_LISTED],
            jobs=needed[:MAX_LISTED],
            snapshots=ids,
        )

    def _repaired(self, finding: Finding) -> Finding:
        """First the blob is moved, so that a submit from then on uploads it: a check that is killed
        in between leaves a missing blob for the next one."""
        owner, sha256, store = finding.user_id, finding.sha256, self.deps.store
        path, aside = blob_path(owner, sha256), ""
        if finding.problem == DAMAGED:
            now = self.deps.clock()
            aside = f"{job_files.aside_root(owner)}/{sha256}.{now:{job_files.ASIDE_TIME}}"
            if isinstance(store, CanMove):
                store.move(path, aside)
            else:
                with store.read(path) as reader:
                    store.write(aside, reader)
                store.delete(path)
        self.deps.db.write(partial(snapshots.take_out_of_use, owner=owner, sha256=sha256))
        return replace(finding, aside=aside)

    def _outputs(self, owner: str) -> Iterator[Finding | None]:
        """Outputs of jobs that have ended, newest first; others may still be written."""
        before: int | None = None
        while page := self.deps.db.read(
            partial(jobs.list_jobs, owner=owner, before=before, limit=JOBS_PAGE)
        ):
            before = page[-1].number
            for job in page:
                if job.final and job.spec.public_bos:
                    for path, row in sorted(job_files.listings(self.deps, job).items()):
                        if row.sha256:
                            yield self._output_finding(job, path, row)

    def _output_finding(self, job: Job, path: str, row: job_files.Listed) -> Finding | None:
        stored, digest = self._read(f"{job_files.user_root(job.owner)}/{path}")
        if digest == row.sha256 or not self.deps.db.read(partial(jobs.get_job, job_id=job.id)):
            return None
        rewritten = stored is not None and row.is_another(stored)
        return Finding(
            problem=CHANGED if rewritten else DAMAGED if stored else MISSING,
            kind="output",
            user_id=job.owner,
            sha256=row.sha256,
            size=stored.size if stored else 0,
            paths=[shown(path)],
            jobs=[job.id],
        )

    def _read(self, path: str) -> tuple[Stat | None, str]:
        """The file as it is stored, None if it is missing, and its SHA-256."""
        digest = hashlib.sha256()
        stored: Stat | None = None
        self.files += 1
        try:
            with self.deps.store.read(path) as reader:
                stored = reader.stat
                for chunk in reader:
                    digest.update(chunk)
                    self.bytes += len(chunk)
        except NotFound:
            return None, ""
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            return stored or self.deps.store.stat(path), ""
        return stored, digest.hexdigest()


def main(settings: Settings, *, user: str | None, repair: bool, as_json: bool, lang: str) -> int:
    """Print what is wrong; 1 if a file is damaged or missing, for scripts that run it at night."""
    found: dict[str, list[Finding]] = {DAMAGED: [], MISSING: [], CHANGED: []}
    with _opened(settings) as deps:
        check = Check(deps=deps, repair=repair)
        reported_at = time.monotonic()
        for finding in check.run(user):
            if finding is not None:
                found[finding.problem].append(finding)
                if not as_json:
                    _print(_line(finding, repair=repair, lang=lang))
            if time.monotonic() - reported_at >= PROGRESS_SECONDS:
                reported_at = time.monotonic()
                progress = {"files": check.files, "size": format_size(check.bytes)}
                sys.stderr.write(render("verified_so_far", progress, lang) + "\n")
    facts: dict[str, Any] = {"files": check.files, "bytes": check.bytes}
    facts |= {f"{problem}_files": len(rows) for problem, rows in found.items()}
    if as_json:
        _print(json.dumps(facts | {key: [asdict(each) for each in found[key]] for key in found}))
    else:
        code = "verified_one" if check.files == 1 else "verified"
        _print(render(code, facts | {"size": format_size(check.bytes)}, lang))
    return 1 if found[DAMAGED] or found[MISSING] else 0


@contextmanager
def _opened(settings: Settings) -> Iterator[Deps]:
    place = database_of(settings)
    if isinstance(place, Path) and is_missing(place):
        raise Refused("verify_no_database", database=str(place))
    with closing(open_database(place, now=datetime.now(UTC), must_exist=True)) as db:
        yield Deps(
            settings=settings,
            db=db,
            store=open_store(settings, shared=db.shared),
            logs=LogStore(settings.store_dir, max_open=0),
            pools={},
            backends={},
            server_key=b"",
            boot="",
        )


def _line(finding: Finding, *, repair: bool, lang: str) -> str:
    code = f"verify_{finding.kind}_{finding.problem}"
    if finding.kind == "submitted" and repair:
        code += "_repaired"
    names = (name if name.isprintable() else ascii(name)[1:-1] for name in finding.paths)
    params = {
        "user": finding.user_id,
        "paths": ", ".join(names) or finding.sha256,
        "jobs": ", ".join(finding.jobs) or "-",
        "aside": finding.aside,
    }
    return render(code, params, lang)


def _print(line: str) -> None:
    sys.stdout.buffer.write(f"{line}\n".encode(errors="backslashreplace"))
    sys.stdout.flush()
