"""Big contents in parts: what is there, what is missing, and the check of the whole.

A small record in the store names the upload, so any server goes on after any restart. The digest of
the whole decides before the content gets its name. A store whose parts cannot be read before they
are joined is checked afterwards: until the record is gone, what lies under the name counts as
missing.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import msgspec

from paddlecloud.db.tables import usage
from paddlecloud.model.errors import Invalid, NotFound, Refused, StorageFull
from paddlecloud.model.files.snapshot import is_digest
from paddlecloud.model.units import format_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import PartsAnswer, PartsRequest, PlaceAnswer
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.files.snapshots import blob_path
from paddlecloud.server.services.transfer.open_uploads import check_storage, record_at, uploads_root
from paddlecloud.server.services.transfer.upload_session import Record, Target, Upload
from paddlecloud.stores.base import (
    CanAdopt,
    CanLocalPath,
    CanMultipart,
    CanPresign,
    CanReadParts,
    CanTellRoom,
)
from paddlecloud.stores.deadline import prompt_if

KIB = 1024
MIB = 1024 * KIB
PART = 8 * MIB
LARGEST_PART = 64 * MIB
"""One is held in memory whole, and several come at once."""
MOST_PARTS = 10_000
"""Object stores take no more."""
LARGEST_FILE = 16 * 1024 * 1024 * MIB
"""Usual file systems take no more."""
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
    with deps.owner_locks.of(owner):
        upload = _found(deps, store, target)
        _touch(deps, target)
        if upload is not None and upload.record.size != request.size:
            raise Invalid("upload_size", got=request.size, want=upload.record.size)
        if upload is None and _is_stored(deps, target, request.size):
            deps.store.delete(target.record)  # of another size, and nothing came of it
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
    now = deps.clock()
    if upload.touched is None or now - upload.touched > _TOUCH:
        upload.touched = now
        _touch_its_own(deps, upload)


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


def drop_abandoned(deps: Deps, owner: str, before: datetime) -> int:
    """Forget uploads with which nobody went on since `before`; how many bytes that freed."""
    records = list(deps.store.list(f"{uploads_root(owner)}/"))
    old = [stat.path.rpartition("/")[2] for stat in records if stat.modified < before]
    targets = [_target(owner, name) for name in old if is_digest(name)]
    return sum(_drop_if_old(deps, target, before) for target in targets)


def _drop_if_old(deps: Deps, target: Target, before: datetime) -> int:
    """What lies under the name goes before the record, which alone says that it is unchecked."""
    with prompt_if(True), deps.owner_locks.of(target.owner):  # for which submits wait
        stat = deps.store.stat(target.record)
        if stat is None or stat.modified >= before:  # somebody went on meanwhile
            return 0
        joined = _unchecked_bytes(deps, target)
        if joined is not None:
            deps.store.delete(target.path)
        deps.store.delete(target.record)
        deps.arriving.forget(target)
    return joined or 0


def _unchecked_bytes(deps: Deps, target: Target) -> int | None:
    """The size of what the parts of an upload were joined to; None if they were not. A content of
    another size was there before, and is good."""
    stat, record = deps.store.stat(target.path), record_at(deps, target.record)
    if isinstance(deps.store, CanReadParts) or stat is None:
        return None
    return stat.size if record is None or record.size == stat.size else None


def _is_stored(deps: Deps, target: Target, size: int) -> bool:
    """Whether the content is there; Invalid when it is, and of another size. A directory may have a
    piece of it, after a loss of power."""
    stat = deps.store.stat(target.path)
    if stat is None or stat.size == size:
        return stat is not None
    if isinstance(deps.store, CanReadParts):
        return False
    raise Invalid("upload_size", got=size, want=stat.size)


def _adopted(
    deps: Deps, store: CanMultipart, target: Target, upload: Upload | None, request: PartsRequest
) -> bool:
    """Take over a file that a client on this machine copied to a place of the store.

    Its name there says its digest, and is believed: the directory is open to nobody but our own
    user, who can write to the whole store. Parts of the same content are not needed any more.
    """
    if deps.settings.team or not isinstance(deps.store, CanAdopt):
        return False
    check_storage(deps, target.owner, request.size, besides=(request.sha256,))
    if not deps.store.adopt(request.handed, request.sha256, target.path, size=request.size):
        return False
    if upload is not None:
        store.drop_parts(target.path, upload.record.upload)
        deps.arriving.forget(target)
    deps.store.delete(target.record)
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
    if record_at(deps, target.record) is not None:
        time.sleep(_SHORT)
        return False
    stat = deps.store.stat(target.path)
    if stat is None or stat.size != upload.record.size:
        raise NotFound("upload_missing", upload=target.sha256)
    return True


def _finished(deps: Deps, store: CanMultipart, upload: Upload) -> bool:
    target = upload.target
    try:
        if isinstance(deps.store, CanReadParts):
            done = upload.checked(deps.store)
            if done:
                _join(store, upload)
        else:
            _keep(deps, upload)
            _give_way(deps, store, upload)
            _join(store, upload)
            done = upload.checked(deps.store)
    except Invalid as error:
        if error.code == "blob_digest":
            _drop(deps, store, upload)
        deps.arriving.forget(target)
        raise
    if done:
        with deps.owner_locks.of(target.owner):
            if record_at(deps, target.record) == upload.record:
                _count(deps, target.owner, upload.record.size)  # while it still holds its room
                deps.store.delete(target.record)
        deps.arriving.forget(target)
    return done


def _keep(deps: Deps, upload: Upload) -> None:
    """What is joined before it is checked has its record meanwhile; NotFound if that is gone."""
    if not upload.joined and not _touch_its_own(deps, upload):
        raise NotFound("upload_missing", upload=upload.target.sha256)


def _give_way(deps: Deps, store: CanMultipart, upload: Upload) -> None:
    """A content that came another way meanwhile is checked instead of the parts, which could be
    joined only over it; Invalid when it is of another size."""
    if upload.joined:
        return
    target, record = upload.target, upload.record
    try:
        is_there = _is_stored(deps, target, record.size)
    except Invalid:
        _drop(deps, store, upload)
        raise
    if is_there:
        store.drop_parts(target.path, record.upload)
        upload.note_joined()


def _join(store: CanMultipart, upload: Upload) -> None:
    if not upload.joined:
        record = upload.record
        store.finish_parts(upload.target.path, record.upload, size=record.size)
        upload.joined = True


def _drop(deps: Deps, store: CanMultipart, upload: Upload) -> None:
    """What came is not what was announced: nothing of it stays. What lies under the name is that
    of another upload if the record is."""
    target = upload.target
    store.drop_parts(target.path, upload.record.upload)
    with deps.owner_locks.of(target.owner):
        if record_at(deps, target.record) == upload.record:
            if upload.joined:
                deps.store.delete(target.path)
            deps.store.delete(target.record)


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


def _touch_its_own(deps: Deps, upload: Upload) -> bool:
    """Whether the record is still that of this upload; only then it is touched."""
    with deps.owner_locks.of(upload.target.owner):
        is_its_own = record_at(deps, upload.target.record) == upload.record
        if is_its_own:
            _touch(deps, upload.target)
    return is_its_own


def _found(deps: Deps, store: CanMultipart, target: Target) -> Upload | None:
    """The upload that was begun before, by whichever server, with the parts that are there now.

    Its record decides: another server may have finished or dropped the one we have in mind. Nobody
    deletes it here: without the owner's lock it may just have become that of a new upload.
    """
    record, known = record_at(deps, target.record), deps.arriving.get(target)
    if known is not None and known.record != record:
        deps.arriving.forget(target)
    elif known is not None and known.joined:
        return known
    if record is None:
        return None
    upload = Upload(target, record)
    try:
        upload.note(store.parts(target.path, record.upload))
    except NotFound:
        deps.arriving.forget(target)
        stat = deps.store.stat(target.path)
        if stat is None or stat.size != record.size:
            return None
        upload.note_joined()
    known = deps.arriving.put(upload)
    known.there |= upload.there
    return known


def _begun(deps: Deps, store: CanMultipart, target: Target, size: int) -> Upload:
    check_storage(deps, target.owner, size, besides=(target.sha256,))
    local = isinstance(deps.store, CanLocalPath)
    limit = LARGEST_FILE if local else LARGEST_PART * MOST_PARTS
    if size > limit:
        raise Refused("upload_too_large", size=format_size(size), limit=format_size(limit))
    part_size = part_size_of(size, local=local)
    name = store.begin_parts(target.path, part_size=part_size)
    record = Record(upload=name, size=size, part_size=part_size)
    deps.store.write(target.record, [msgspec.json.encode(record)])
    return deps.arriving.put(Upload(target, record))


def part_size_of(size: int, *, local: bool) -> int:
    """Bytes of a part: little of the file, as far as a bucket takes small ones, and more where
    there would be too many, which a disk that is near takes in the end."""
    least, step = (256 * KIB, 64 * KIB) if local else (5 * MIB, MIB)
    share = size // LOSS // step * step
    return max(least, min(PART, share), min(LARGEST_PART, -(-size // MOST_PARTS // step) * step))


def _urls(deps: Deps, upload: Upload) -> list[tuple[int, str]]:
    """Addresses for the next parts, where the store is a place of its own."""
    store = deps.store
    if not isinstance(store, CanPresign) or isinstance(store, CanReadParts):
        return []
    now, name, path = deps.clock(), upload.record.upload, upload.target.path
    numbers = [n for n in range(1, upload.count + 1) if n not in upload.there][:URLS]
    return [(n, store.presign_part(path, name, n, good_for=GOOD_FOR, now=now)) for n in numbers]
