"""The engine of large uploads: which parts go where, and how much of a file is in memory."""

from __future__ import annotations

import hashlib
import threading
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from paddlecloud.model.errors import Conflict, NotFound, Unreachable
from paddlecloud.transfer import parts
from paddlecloud.transfer.parts import PartSender, Target, Upload
from paddlecloud.transfer.presigned import PutFailed
from paddlecloud.transfer.resume import Progress
from paddlecloud.transfer.slots import Slots

PART = 10
DATA = b"1" * PART + b"2" * PART + b"3" * PART + b"4"
PIECES = [DATA[begin : begin + PART] for begin in range(0, len(DATA), PART)]
TAGS = [hashlib.md5(piece, usedforsecurity=False).hexdigest() for piece in PIECES]
SHA256 = hashlib.sha256(DATA).hexdigest()


class File:
    """These bytes; `changes` after so many reads."""

    def __init__(self, data: bytes = DATA, changes: int = 1000) -> None:
        self.size = len(data)
        self._data = data
        self._left = changes
        self.read_from: list[int] = []

    def read(self, begin: int, buffer: memoryview) -> None:
        self.read_from.append(begin)
        buffer[:] = self._data[begin : begin + len(buffer)]
        self._left -= 1
        self.check()

    def check(self) -> None:
        if self._left < 0:
            raise Conflict("files_changed", path="big")


class Store(Target):
    """Keeps parts, and says of an upload what it is told to say."""

    def __init__(self, there: Mapping[int, str] | None = None, **how: Any) -> None:
        self._there, self._how = there, how
        self.taken: dict[int, bytes] = {}
        self.asked: list[list[int]] = []
        self.stored_numbers: list[int] = []
        self.ended: tuple[list[str], str] | None = None

    def begin(self) -> Upload:
        return Upload(PART, self._there, **self._how)

    def presign(self, numbers: Sequence[int]) -> Mapping[int, str]:
        self.asked.append([*numbers])
        return {number: f"http://bucket/{number}" for number in numbers}

    def put(self, number: int, data: memoryview) -> str:
        self.taken[number] = bytes(data)
        return ""

    def stored(self, number: int) -> None:
        self.stored_numbers.append(number)

    def complete(self, tags: Sequence[str], sha256: str) -> None:
        self.ended = [*tags], sha256


class Bucket:
    """Takes what is put to presigned URLs, as often as it is told to."""

    def __init__(self, takes: int = 1000) -> None:
        self.left = takes
        self.taken: dict[int, bytes] = {}
        self.tries = 0
        self.is_any_away = False
        self.meanwhile: Callable[[], object] = lambda: None

    def is_away(self, url: str) -> bool:
        return self.is_any_away

    def put(self, url: str, data: memoryview, report: Callable[[int], object]) -> str:
        self.tries += 1
        self.meanwhile()
        self.left -= 1
        if self.left < 0:
            self.is_any_away = True
            raise PutFailed("500")
        number = int(url.rpartition("/")[2])
        self.taken[number] = bytes(data)
        report(len(data))
        return f'"{TAGS[number - 1]}"'


def sender(
    target: Target, bucket: Bucket | None = None, file: File | None = None, **how: Any
) -> PartSender:
    connections: Any = bucket or Bucket()
    progress = how.pop("progress", None) or Progress()
    return PartSender(file or File(), target, connections, progress, **how)


def numbered(*numbers: int) -> dict[int, bytes]:
    return {number: PIECES[number - 1] for number in numbers}


def test_all_parts_go_through_a_server_that_has_no_urls() -> None:
    target, bucket = Store(verified=True), Bucket()
    assert sender(target, bucket).send() == ""
    assert (target.taken, target.asked, bucket.tries) == (numbered(1, 2, 3, 4), [], 0)
    assert target.ended == ([""] * 4, "")
    assert target.stored_numbers == [1, 2, 3, 4]


def test_what_is_stored_already_is_not_sent() -> None:
    target, file = Store(stored=True), File()
    assert sender(target, file=file, hashes=True).send() == ""
    assert (target.taken, target.ended, file.read_from) == ({}, None, [])


def test_parts_that_the_server_verifies_in_the_end_are_not_even_read() -> None:
    target, file = Store({2: "", 4: ""}, verified=True), File()
    sent, skipped = list[int](), list[int]()
    progress = Progress(lambda count, _: sent.append(count), lambda count, _: skipped.append(count))
    sender(target, file=file, progress=progress).send()
    assert target.taken == numbered(1, 3)
    assert file.read_from == [0, 2 * PART]
    assert (sum(sent), sum(skipped)) == (2 * PART, PART + 1)


def test_who_hashes_reads_everything_once() -> None:
    target, file = Store({2: "", 4: ""}, verified=True), File()
    assert sender(target, file=file, hashes=True).send() == SHA256
    assert target.taken == numbered(1, 3)
    assert file.read_from == [0, PART, 2 * PART, 3 * PART]
    assert target.ended == ([""] * 4, SHA256)


def test_parts_that_are_there_are_compared_and_sent_again_if_they_are_others() -> None:
    there = {1: f'"{TAGS[0]}"', 2: f'"{TAGS[0]}"', 3: '"no md5-1"'}
    target, bucket = Store(there, through=False, urls={}), Bucket()
    sender(target, bucket).send()
    assert bucket.taken == numbered(2, 3, 4)
    assert target.ended == ([f'"{tag}"' for tag in TAGS], "")


def test_a_part_without_a_tag_counts_only_where_the_whole_is_verified() -> None:
    target, bucket = Store({1: TAGS[0], 2: ""}, urls={}), Bucket()
    sender(target, bucket).send()
    assert bucket.taken == numbered(2, 3, 4)


def test_urls_are_asked_for_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "URLS", 2)
    target, bucket = Store({1: TAGS[0]}, through=False, urls={}), Bucket()
    sender(target, bucket).send()
    assert target.asked == [[2, 3], [4]]
    given, known = Bucket(), {number: f"http://bucket/{number}" for number in (1, 2, 3)}
    target = Store(urls=known)
    sender(target, given).send()
    assert (target.asked, given.taken) == ([[4]], numbered(1, 2, 3, 4))


@pytest.mark.parametrize("takes", [0, 1, 3])
def test_the_rest_goes_through_the_server_when_the_bucket_takes_no_more(takes: int) -> None:
    target, bucket = Store(urls={}), Bucket(takes)
    assert sender(target, bucket, hashes=True).send() == SHA256
    assert bucket.taken == numbered(*range(1, takes + 1))
    assert target.taken == numbered(*range(takes + 1, 5))
    assert bucket.tries == takes + 1


def test_without_that_way_it_fails_and_is_not_completed() -> None:
    target, bucket = Store(through=False, urls={}), Bucket(2)
    with pytest.raises(PutFailed):
        sender(target, bucket).send()
    assert (target.taken, target.ended) == ({}, None)


def test_a_host_that_is_away_is_not_asked_unless_there_is_no_other_way() -> None:
    target, bucket = Store(urls={}), Bucket()
    bucket.is_any_away = True
    sender(target, bucket).send()
    assert (bucket.tries, target.asked) == (0, [])
    target = Store(through=False, urls={})
    sender(target, bucket).send()
    assert bucket.taken == numbered(1, 2, 3, 4)


@pytest.mark.parametrize("reads", [0, 2])
def test_a_file_that_changes_is_not_completed(reads: int) -> None:
    target = Store(verified=True)
    with pytest.raises(Conflict):
        sender(target, file=File(changes=reads)).send()
    assert target.ended is None


def test_a_file_that_changed_after_its_last_part_was_read_is_not_completed() -> None:
    target, file = Store(urls={}), File()
    bucket = Bucket()

    def last() -> None:
        if bucket.tries == 4:
            file._left = -1

    bucket.meanwhile = last
    with pytest.raises(Conflict):
        sender(target, bucket, file).send()
    assert target.ended is None


@pytest.mark.parametrize(
    ("threads", "total", "want"), [(1, 10_000, 1), (3, 10_000, 3), (9, 10_000, 4), (3, 400, 2)]
)
def test_a_few_parts_are_under_way_and_little_of_all_that_is_sent(
    threads: int, total: int, want: int
) -> None:
    lock, here, most = threading.Lock(), set[int](), list[int]()
    together = threading.Barrier(want, timeout=20)

    class Slow(Store):
        def put(self, number: int, data: memoryview) -> str:
            with lock:
                here.add(number)
                most.append(len(here))
            together.wait()
            with lock:
                here.discard(number)
            return super().put(number, data)

    file = File(b"x" * PART * 12)
    target, slots = Slow(verified=True), Slots(4)
    sender(target, file=file, threads=threads, total=total, slots=slots, hashes=True).send()
    assert max(most) == want
    assert sorted(target.taken) == [*range(1, 13)]
    assert target.ended == ([""] * 12, hashlib.sha256(b"x" * PART * 12).hexdigest())
    assert (slots._free, len(slots._waiting)) == (4, 0)


def test_files_that_wait_for_a_slot_have_nothing_in_memory() -> None:
    size, waiting = 1024 * 1024, 6
    slots, begun, go = Slots(1), threading.Semaphore(0), threading.Semaphore(0)

    class Slow(Store):
        def begin(self) -> Upload:
            return Upload(size, verified=True)

        def put(self, number: int, data: memoryview) -> str:
            begun.release()
            assert go.acquire(timeout=20)
            return ""

    def send() -> None:
        sender(Slow(), file=File(bytes(2 * size)), slots=slots).send()

    threads = [threading.Thread(target=send, daemon=True) for _ in range(waiting)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for thread in threads:
            thread.start()
        most = 0
        for _ in range(2 * waiting):
            assert begun.acquire(timeout=20)
            most = max(most, tracemalloc.get_traced_memory()[0] - before - 2 * waiting * size)
            go.release()
    finally:
        tracemalloc.stop()
    for thread in threads:
        thread.join(20)
    assert 0 < most < 2 * size


@pytest.mark.parametrize("error", [NotFound("upload_missing", upload="u"), KeyboardInterrupt()])
def test_an_error_gives_every_slot_back(error: BaseException) -> None:
    class Failing(Store):
        def put(self, number: int, data: memoryview) -> str:
            raise error

    slots = Slots(1)
    with pytest.raises(type(error)):
        sender(Failing(verified=True), slots=slots).send()
    with pytest.raises(Conflict):
        sender(Store(verified=True), file=File(changes=0), slots=slots).send()
    assert slots._free == 1


def test_the_next_send_resumes() -> None:
    """The server took two parts and went away."""

    class Server(Store):
        def begin(self) -> Upload:
            return Upload(PART, dict.fromkeys(self.taken, ""), verified=True)

        def put(self, number: int, data: memoryview) -> str:
            if len(self.taken) == 2 and not self.asked:
                raise Unreachable("server_closed", address="there")
            return super().put(number, data)

    target, file = Server(), File()
    with pytest.raises(Unreachable):
        sender(target, file=file).send()
    assert target.taken == numbered(1, 2)
    target.asked.append([])
    target.stored_numbers.clear()
    sender(target, file=file).send()
    assert target.stored_numbers == [3, 4]
    assert target.taken == numbered(1, 2, 3, 4)
