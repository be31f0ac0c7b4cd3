"""Who waits how long for a store that says nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from paddlecloud.model.errors import Unreachable
from paddlecloud.stores.deadline import be_prompt, is_prompt, prompt_if
from paddlecloud.stores.s3 import _client as client
from paddlecloud.stores.s3._client import Request, S3Client
from paddlecloud.stores.s3._workers import WorkerPool
from paddlecloud.stores.s3.sigv4 import Keys


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as made:
        yield made


@pytest.fixture
def wire(listener: socket.socket) -> Iterator[S3Client]:
    made = S3Client(
        f"http://127.0.0.1:{listener.getsockname()[1]}",
        "bucket",
        Keys(access_key="a", secret_key="s"),
        region="r",
        path_style=True,
        clock=lambda: datetime.now(UTC),
        sleep=lambda seconds: None,
    )
    yield made
    made.close()


def came(listener: socket.socket) -> int:
    """How many connections there were."""
    listener.setblocking(False)
    count = 0
    try:
        while True:
            listener.accept()[0].close()
            count += 1
    except BlockingIOError:
        return count


def test_a_thread_is_patient_until_it_is_told_otherwise() -> None:
    told: list[bool] = []

    def work() -> None:
        told.append(is_prompt())
        be_prompt()
        told.append(is_prompt())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert told == [False, True]
    assert not is_prompt()


def test_what_others_do_for_it_is_done_as_promptly() -> None:
    pool = WorkerPool(workers=1, max_bytes=10)
    with prompt_if(True):
        prompt = pool.submit(1, is_prompt)
    patient = pool.submit(1, is_prompt)
    assert (prompt.result(20), patient.result(20)) == (True, False)
    pool.close()


def test_silence_is_told_after_one_try(
    wire: S3Client, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PROMPT", (4.0, 0.1))
    monkeypatch.setattr(client, "PROMPT_AGAIN", 0.1)
    port = listener.getsockname()[1]
    with prompt_if(True), pytest.raises(Unreachable, match=rf"bucket \(127.0.0.1:{port}\) does"):
        wire.ask(Request(method="GET", key="x"))
    assert came(listener) == 1


def test_who_comes_after_a_silence_waits_for_less(
    wire: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = Request(method="GET", key="x"), Request(method="PUT", key="x", body=b"b")
    joined = Request(method="POST", key="x", slow=True)
    monkeypatch.setattr(client, "PROMPT", (4.0, 0.1))
    with prompt_if(True):
        assert wire._seconds(small) == (4.0, 0.1)
        with pytest.raises(Unreachable):
            wire.ask(small)
        monkeypatch.undo()
        asked = [wire._seconds(request)[1] for request in (small, large, joined)]
        assert asked == [client.PROMPT_AGAIN, client.PROMPT[1], client.PROMPT_SLOW]
    assert wire._seconds(small) == wire._seconds(joined) == (10.0, 60.0)
