"""A download that stands still is asked for once more, at the byte where it stood."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime

import pytest

from paddlecloud.model.errors import Unreachable
from paddlecloud.stores.deadline import prompt_if
from paddlecloud.stores.s3 import _client as client
from paddlecloud.stores.s3._client import S3Client
from paddlecloud.stores.s3._streams import Stream
from paddlecloud.stores.s3.sigv4 import Keys

DATA = b"0123456789"
HEAD = b'HTTP/1.1 200 OK\r\netag: "1"\r\ncontent-length: 10\r\n\r\n'
REST = (
    b'HTTP/1.1 206 Partial Content\r\netag: "1"\r\ncontent-length: 6\r\n'
    b"content-range: bytes 4-9/10\r\n\r\n"
)
BEYOND = b"HTTP/1.1 416 Range\r\nx-amz-request-id: 1\r\ncontent-length: 100\r\n\r\n"


class Halting:
    """Says one thing on each connection, and then nothing more; the connection stays open."""

    def __init__(self, *said: bytes) -> None:
        self.asked: list[str] = []
        self._said = said
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.client = S3Client(
            f"http://127.0.0.1:{self._listener.getsockname()[1]}",
            "bucket",
            Keys(access_key="a", secret_key="s"),
            region="r",
            path_style=True,
            clock=lambda: datetime.now(UTC),
            sleep=lambda seconds: None,
        )

    def __enter__(self) -> Halting:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        self.client.close()
        for each in (*self._open, self._listener):
            each.close()

    def _serve(self) -> None:
        with suppress(OSError):
            for answer in self._said:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self.asked.append(connection.recv(65536).decode())
                connection.sendall(answer)


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody waits, for a second: in less, a busy machine would answer too late."""
    monkeypatch.setattr(client, "PROMPT", (4.0, 1.0))
    with prompt_if(True):
        yield


def read(stream: Stream) -> bytes:
    found = b""
    with closing(stream):
        while len(found) < stream.length:
            found += stream.read(100)
    return found


@pytest.mark.usefixtures("prompt")
def test_it_goes_on_at_the_same_byte_of_the_same_object() -> None:
    with Halting(HEAD + DATA[:4], REST + DATA[4:]) as server:
        assert read(Stream(server.client, "x", "x", 0, None)) == DATA
    assert "range: bytes=4-9" in server.asked[1]
    assert 'if-match: "1"' in server.asked[1]


@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize("said", [b"", REST])
def test_a_second_silence_is_told(said: bytes) -> None:
    with Halting(HEAD + DATA[:4], said, REST + DATA[4:]) as server:
        with pytest.raises(Unreachable, match="timed out"):
            read(Stream(server.client, "x", "x", 0, None))
        assert len(server.asked) == 2


@pytest.mark.usefixtures("prompt")
def test_nobody_waits_for_words_about_a_part_that_is_none() -> None:
    with Halting(BEYOND + b"<Error>", HEAD) as server:
        stream = Stream(server.client, "x", "x", 20, 5)
        assert (stream.size, stream.length, read(stream)) == (10, 0, b"")


@pytest.mark.usefixtures("prompt")
def test_a_server_that_sends_the_whole_and_halts_before_the_part_is_told() -> None:
    with Halting(HEAD + DATA[:2]) as server:
        with pytest.raises(Unreachable, match="timed out"):
            Stream(server.client, "x", "x", 4, None)
        assert not any(server.client._pool._idle.values())


@pytest.mark.usefixtures("prompt")
def test_a_part_that_is_asked_for_again_may_halt_before_it_begins() -> None:
    with Halting(HEAD + DATA[:4], HEAD + DATA[:2]) as server:
        with pytest.raises(Unreachable, match="timed out"):
            read(Stream(server.client, "x", "x", 0, None))
        assert len(server.asked) == 2


def test_who_was_answered_after_a_silence_may_stand_still_for_as_long_as_others() -> None:
    with Halting(HEAD + DATA) as server, prompt_if(True):
        server.client._silent_at = time.monotonic()
        stream = Stream(server.client, "x", "x", 0, None)
        assert stream._response is not None
        assert stream._response._stream.timeout == client.PROMPT[1] > client.PROMPT_AGAIN
        assert read(stream) == DATA
