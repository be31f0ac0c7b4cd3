"""The resume loop of uploads: how long it goes on, what it reports, and what it gives up."""

from __future__ import annotations

import pytest

from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.errors import (
    Conflict,
    Invalid,
    NotFound,
    PaddleCloudError,
    Retry,
    StorageFull,
    Unreachable,
)
from paddlecloud.net import retry
from paddlecloud.transfer.resume import Progress, restarted_if_stale, resume

FAILED = Retry("store_failed", place="p", detail="500")
CUT = Unreachable("server_closed", address="x")


class Line:
    """An upload over a line that breaks some times: what it was to send, and what arrived."""

    def __init__(self, breaks: list[PaddleCloudError], arrives: int = 10) -> None:
        self._breaks = breaks
        self._arrives = arrives
        self._arrived = 0
        self.tries = 0
        self.told: list[str] = []
        self.heard: list[tuple[int, int]] = []

    def send(self) -> None:
        progress = Progress(lambda *now: self.heard.append(now))
        resume(lambda: self._work(progress), progress, lambda code, **_: self.told.append(code))

    def _work(self, progress: Progress) -> None:
        """Of 100 bytes each try sends 20 more, of which some are there when the next one asks."""
        self.tries += 1
        left = 100 - self._arrived
        progress.begin(left)
        if not self._breaks:
            progress.add(left)
            return
        progress.add(10)
        progress.add(10)
        self._arrived += self._arrives
        raise self._breaks.pop(0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.RESUME, "first_pause", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("breaks", [0, 1, 3, 8])
def test_an_upload_over_a_broken_line_goes_on_as_long_as_something_arrives(breaks: int) -> None:
    line = Line([CUT] * breaks)
    line.send()
    assert line.tries == breaks + 1
    assert line.told == ["upload_again"] * breaks
    counts, totals = zip(*line.heard, strict=True)
    assert (sum(counts), {*totals}) == (100, {100})


@pytest.mark.usefixtures("at_once")
def test_a_line_that_stays_broken_is_given_up_and_what_arrived_is_told() -> None:
    line = Line([CUT] * 9, arrives=0)
    with pytest.raises(Unreachable):
        line.send()
    assert (line.tries, line.told) == (4, ["upload_again", "upload_kept"])
    for lang in LANGUAGES:
        assert render("upload_kept", {}, lang) and render("upload_again", {}, lang)


@pytest.mark.usefixtures("at_once")
def test_a_store_that_fails_gets_the_bytes_once_more() -> None:
    """The server has tried several times before it says so."""
    line = Line([FAILED] * 9, arrives=0)
    with pytest.raises(Retry, match="500"):
        line.send()
    assert (line.tries, line.told) == (2, ["upload_again", "upload_kept"])


@pytest.mark.usefixtures("at_once")
def test_a_store_may_fail_after_a_line_that_broke() -> None:
    line = Line([CUT, FAILED, CUT], arrives=0)
    line.send()
    assert line.tries == 4


@pytest.mark.usefixtures("at_once")
def test_a_store_that_fails_now_and_then_gets_all() -> None:
    line = Line([FAILED] * 8)
    line.send()
    assert line.tries == 9


@pytest.mark.usefixtures("at_once")
def test_damage_on_the_way_is_not_told_as_silence() -> None:
    line = Line([Retry("upload_damaged", reason="another digest")])
    line.send()
    assert line.told == ["upload_again_damaged"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("begun", [True, False])
def test_a_bucket_that_never_answered_may_be_a_wrong_address(begun: bool) -> None:
    tries: list[int] = []
    params = {"bos_url": "b.bj.bcebos.com", "host": "b", "reason": "timed out"}
    progress = Progress()

    def work() -> None:
        tries.append(1)
        if begun:
            progress.begin(2)
            progress.add(1)
        raise Unreachable("private_store_unreachable", **params)

    with pytest.raises(Unreachable):
        resume(work, progress, lambda code, **_: None)
    assert len(tries) == (4 if begun else 1)


@pytest.mark.parametrize(
    "error", [StorageFull("store_full", path="x"), Conflict("files_changed", path="x")]
)
def test_what_a_pause_does_not_fix_is_raised_at_once(error: PaddleCloudError) -> None:
    line = Line([error])
    with pytest.raises(type(error)):
        line.send()
    assert (line.tries, line.told) == (1, [])


@pytest.mark.parametrize("times", [1, 3, 9])
def test_what_is_not_there_after_all_is_sent_again_without_a_pause_and_not_for_ever(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slept(seconds: float) -> None:
        assert seconds == 0

    monkeypatch.setattr("paddlecloud.transfer.resume.sleep", slept)
    line = Line([Retry("upload_unfinished", files=1, path="x")] * times, arrives=0)
    if times < 4:
        line.send()
    else:
        with pytest.raises(Retry, match="is still incomplete on the server"):
            line.send()
    assert (line.tries, line.told) == (min(times + 1, 4), [])


@pytest.mark.parametrize(
    ("error", "stale"),
    [
        (NotFound("upload_missing", upload="u"), True),
        (Invalid("upload_incomplete", got=1, want=2, missing=1), True),
        (Invalid("blob_digest", want="a", got="b"), True),
        (Conflict("files_changed", path="x"), False),
        (CUT, False),
    ],
)
def test_another_state_than_the_sender_believed_is_asked_for_again(
    error: PaddleCloudError, stale: bool
) -> None:
    with pytest.raises(PaddleCloudError) as caught, restarted_if_stale("big"):
        raise error
    assert (caught.value is error) is not stale
    if stale:
        assert caught.value.code == "upload_unfinished"
        assert caught.value.params == {"files": 1, "path": "big"}


@pytest.mark.parametrize("begun", [True, False])
def test_who_interrupts_it_hears_that_it_can_be_resumed(begun: bool) -> None:
    told: list[str] = []
    progress = Progress()

    def work() -> None:
        if begun:
            progress.begin(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(work, progress, lambda code, **_: told.append(code))
    assert told == (["upload_kept"] if begun else [])


def test_several_threads_report_their_progress_one_at_a_time() -> None:
    """Whoever draws it adds up what it gets."""
    held: list[bool] = []
    progress = Progress(lambda count, total: held.append(progress._lock.locked()))
    progress.begin(2)
    progress.add(1)
    assert held == [True]


def test_bytes_that_are_sent_twice_are_reported_once() -> None:
    sent: list[int] = []
    skipped: list[int] = []
    progress = Progress(lambda count, _: sent.append(count), lambda count, _: skipped.append(count))
    progress.begin(10)
    assert not progress.has_grown()
    progress.add(0)
    progress.skip(3)
    progress.add(4)
    progress.add(-4)
    assert progress.has_grown()
    progress.begin(10)
    progress.skip(5)
    assert not progress.has_grown()
    progress.add(5)
    assert progress.has_grown()
    assert (sent, skipped) == ([0, 4, 3], [3])
