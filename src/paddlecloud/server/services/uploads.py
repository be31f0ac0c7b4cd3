"""Big contents in parts: what is there, what is missing, and the check of the whole.

A small record in the store names the upload, so any server goes on after any restart. The digest of
the whole decides before the content gets its name. A store whose parts cannot be read before they
are joined is checked afterwards: until the record is gone, what lies under the name counts as
missing.
"""

from __future__ import annotations

import time
from datetime import timedelta

import msgspec

from paddlecloud.db import usage
from paddlecloud.model.errors import Invalid, NotFound, Refused, StorageFull
from paddlecloud.model.quantities import format_size
from paddlecloud.model.snapshot import is_digest
from paddlecloud.server.arriving import Record, Target, Upload
from paddlecloud.server.deps import Deps
from paddlecloud.server.services import quota
from paddlecloud.server.services.snapshots import blob_path, uploads_root
from paddlecloud.server.shapes_uploads import PartsAnswer, PartsRequest, PlaceAnswer
from paddlecloud.stores.base import (
    CanAdopt,
    CanLocalPath,
    CanMultipart,
    CanPresign,
    CanReadParts,
    CanTellRoom,
)

MIB = 1024 * 1024
PART = 8 * MIB
MOST_PARTS = 8000
"""Object stores take 10,000."""
LOSS = 64
"""A file has so many parts at least: what is under way when a line breaks is a small share."""
GOOD_FOR = timedelta(hours=6)
URLS = 200
"""Addresses in one answer."""
_TOUCH = timedelta(hours=1)
_SHORT = 0.02


def place(deps: Deps) -> PlaceAnswer:
    """A fresh directory for files that the caller, who is this server's own user, copies there.

    A team server has none: its store is not its callers'.
    """
    if deps.settings.team or not isinstance(deps.store, CanAdopt):
        return PlaceAnswer()
    name, path = deps.store.make_place()
    return PlaceAnswer(name=name, path=str(path))


def begin(deps: Deps, owner: str, request: PartsRequest) -> PartsAnswer:
    """How an upload stands, begun if it was not; `stored` when there is nothing to do."""
    store = _store(deps)
    target = _target(owner, request.sha256)
    with deps.uploads.of(owner):
        upload = _found(deps, store, target)
        _touch(deps, target)
        if upload is not None and upload.record.size != request.size:
            raise Invalid("upload_size", got=request.size, want=upload.record.size)
        if upload is None:
            stat = deps.store.stat(target.path)
            if stat is not None and stat.size == request.size:
                return PartsAnswer(stored=True)
        if request.handed and _adopted(deps, store, target, upload, request):
            return PartsAnswer(stored=True)
        if upload is None:
            _check_room(deps, request)
            upload = _begun(deps, store, target, request.size)
    there = sorted(upload.there)
    urls = _urls(deps, upload) if request.direct and not upload.joined else []
    return PartsAnswer(stored=False, part_size=upload.record.part_size, parts=there, urls=urls)


def opened(deps: Deps, owner: str, sha256: str) -> Upload:
    """The upload that a part is for."""
    target = _target(owner, sha256)
    upload = deps.arriving.get(target) or _found(deps, _store(deps), target)
    if upload is None or upload.joined:
        raise NotFound("upload_missing", upload=sha256[:100])
    return upload


def put(deps: Deps, upload: Upload, number: int, data: bytes | bytearray) -> None:
    """Keep one part, whole and checked for damage."""
    deps.arriving.put_part(upload, _store(deps), number, data)


def finish(deps: Deps, owner: str, sha256: str) -> bool:
    """Check the whole and give it its name; False: the check goes on, ask again."""
    store = _store(deps)
    target = _target(owner, sha256)
    upload = _found(deps, store, target)
    if upload is None:
        if deps.store.stat(target.path) is None:
            raise NotFound("upload_missing", upload=sha256[:100])
        return True
    upload.check_whole()
    with upload.closed() as closed:
        try:
            return closed and _finished(deps, store, upload)
        except NotFound:
            deps.arriving.forget(target)
            return _finished_by_another(deps, upload)


def _adopted(
    deps: Deps, store: CanMultipart, target: Target, upload: Upload | None, request: PartsRequest
) -> bool:
    """Take over a file that a client on this machine copied to a place of the store.

    Its name there says its digest, and is believed: the directory is open to nobody but our own
    user, who can write to the whole store. Parts of the same content are not needed any more.
    """
    if deps.settings.team or not isinstance(deps.store, CanAdopt):
        return False
    quota.check_storage(deps, target.owner, request.size)
    if not deps.store.adopt(request.handed, request.sha256, target.path, size=request.size):
        return False
    if upload is not None:
        store.drop_parts(target.path, upload.record.upload)
        deps.store.delete(target.record)
        deps.arriving.forget(target)
    _count(deps, target.owner, request.size)
    return True


def _check_room(deps: Deps, request: PartsRequest) -> None:
    """Refuse what cannot fit before any of it is sent."""
    size = request.size if request.allocated is None else min(request.size, request.allocated)
    if isinstance(deps.store, CanTellRoom) and (room := deps.store.room()) < size:
        raise StorageFull("store_room", size=format_size(size), room=format_size(max(0, room)))


def _count(deps: Deps, owner: str, size: int) -> None:
    if quota.storage_left(deps, owner) is not None:
        deps.db.write(lambda tx: usage.add_files(tx, owner, size))


def _finished_by_another(deps: Deps, upload: Upload) -> bool:
    """Two send the same, and one was a moment earlier; False while that one still checks it."""
    target = upload.target
    if _record(deps, target) is not None:
        time.sleep(_SHORT)
        return False
    stat = deps.store.stat(target.path)
    if stat is None or stat.size != upload.record.size:
        raise NotFound("upload_missing", upload=target.sha256)
    return True


def _finished(deps: Deps, store: CanMultipart, upload: Upload) -> bool:
    target, record = upload.target, upload.record
    early = isinstance(deps.store, CanReadParts)
    try:
        if early and not upload.checked(deps.store):
            return False
        if not upload.joined:
            store.finish_parts(target.path, record.upload, size=record.size)
            upload.joined = True
        if not early and not upload.checked(deps.store):
            return False
    except Invalid as error:
        if error.code == "blob_digest":
            _drop(deps, store, upload)
        deps.arriving.forget(target)
        raise
    deps.store.delete(target.record)
    deps.arriving.forget(target)
    _count(deps, target.owner, record.size)
    return True


def _drop(deps: Deps, store: CanMultipart, upload: Upload) -> None:
    """What came is not what was announced: nothing of it stays."""
    if upload.joined:
        deps.store.delete(upload.target.path)
    store.drop_parts(upload.target.path, upload.record.upload)
    deps.store.delete(upload.target.record)


def _target(owner: str, sha256: str) -> Target:
    if not is_digest(sha256):
        raise NotFound("upload_missing", upload=sha256[:100])
    record = f"{uploads_root(owner)}/{sha256}"
    return Target(owner=owner, sha256=sha256, path=blob_path(owner, sha256), record=record)


def _store(deps: Deps) -> CanMultipart:
    if not isinstance(deps.store, CanMultipart):
        raise Refused("upload_no_parts")
    return deps.store


def _touch(deps: Deps, target: Target) -> None:
    """An upload that goes on is not abandoned, however old it is."""
    stat = deps.store.stat(target.record)
    if stat is not None and deps.clock() - stat.modified > _TOUCH:
        with deps.store.read(target.record) as reader:
            deps.store.write(target.record, [b"".join(reader)])


def _found(deps: Deps, store: CanMultipart, target: Target) -> Upload | None:
    """The upload that was begun before, by whichever server, with the parts that are there now."""
    known = deps.arriving.get(target)
    if known is not None and known.joined:
        return known
    record = known.record if known is not None else _record(deps, target)
    if record is None:
        return None
    try:
        parts = store.parts(target.path, record.upload)
    except NotFound:
        deps.arriving.forget(target)
        return _joined(deps, target, record)
    upload = deps.arriving.put(Upload(target, record))
    upload.note(parts)
    return upload


def _record(deps: Deps, target: Target) -> Record | None:
    try:
        with deps.store.read(target.record) as reader:
            return msgspec.json.decode(b"".join(reader), type=Record)
    except (NotFound, msgspec.DecodeError):
        return None


def _joined(deps: Deps, target: Target, record: Record) -> Upload | None:
    """An upload whose parts are one file already, but whose check did not end."""
    stat = deps.store.stat(target.path)
    if stat is None or stat.size != record.size:
        deps.store.delete(target.record)
        return None
    upload = Upload(target, record)
    upload.there = {n: upload.size_of(n) for n in range(1, upload.count + 1)}
    upload.joined = True
    return deps.arriving.put(upload)


def _begun(deps: Deps, store: CanMultipart, target: Target, size: int) -> Upload:
    quota.check_storage(deps, target.owner, size)
    part_size = part_size_of(size, local=isinstance(deps.store, CanLocalPath))
    name = store.begin_parts(target.path, part_size=part_size)
    record = Record(upload=name, size=size, part_size=part_size)
    deps.store.write(target.record, [msgspec.json.encode(record)])
    return deps.arriving.put(Upload(target, record))


def part_size_of(size: int, *, local: bool) -> int:
    """Bytes of a part: 8 MiB, less where a file is small and the disk is near, more where there
    would be too many."""
    least = MIB if local else PART
    share = -(-size // LOSS // MIB) * MIB
    return max(least, min(PART, share), -(-size // MOST_PARTS // MIB) * MIB)


def _urls(deps: Deps, upload: Upload) -> list[tuple[int, str]]:
    """Addresses for the next parts, where the store is a place of its own."""
    store = deps.store
    if not isinstance(store, CanPresign) or isinstance(store, CanReadParts):
        return []
    now, name, path = deps.clock(), upload.record.upload, upload.target.path
    numbers = [n for n in range(1, upload.count + 1) if n not in upload.there][:URLS]
    return [(n, store.presign_part(path, name, n, good_for=GOOD_FOR, now=now)) for n in numbers]
