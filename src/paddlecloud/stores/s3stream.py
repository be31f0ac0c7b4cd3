"""The bytes of one object as they come; a connection that breaks is made again at the same byte.

It goes on only with the object that it began with: one that was replaced meanwhile has another
mark, and the reader is told instead of being given a mixture. A server that answers a request for a
part with the whole is understood.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddlecloud.model.errors import Conflict, NotFound, PaddleCloudError, Retry
from paddlecloud.stores.http11 import Connection, Response
from paddlecloud.stores.patience import is_prompt, prompt_if
from paddlecloud.stores.s3wire import Request, Wire
from paddlecloud.stores.tree import shown

TIMES = 5
"""So often a broken connection is made again without a byte in between."""
_SKIP = 256 * 1024


class Stream:
    def __init__(
        self, wire: Wire, key: str, path: str, offset: int, length: int | None, tag: str = ""
    ) -> None:
        """Opened at once; NotFound when there is no such object, Conflict when there is one of
        another `tag`."""
        self._wire, self._key, self._path = wire, key, path
        self._connection: Connection | None = None
        self._response: Response | None = None
        self._at = offset
        self._prompt = is_prompt()
        """Other threads read on for the one that opened it."""
        self.headers: Mapping[str, str] = {}
        self.size = 0
        """Of the whole object."""
        try:
            self._open_first(length, {"if-match": tag} if tag else {})
        except NotFound:
            raise NotFound("file_missing", path=shown(path)) from None
        except OSError as error:
            self._drop()
            raise wire.unreachable(error) from error
        beyond = self.size if length is None else offset + length
        self._end = min(self.size, max(0, beyond))
        self.length = max(0, self._end - offset)
        """Bytes that will come."""

    def read(self, most: int) -> bytes:
        """Some of the next bytes."""
        with prompt_if(self._prompt):
            return self._read(most)

    def close(self) -> None:
        connection, response = self._connection, self._response
        self._connection = self._response = None
        if connection is not None and response is not None:
            self._wire.give_back(connection, response)

    def _read(self, most: int) -> bytes:
        failure: PaddleCloudError | None = None
        silent = False
        for _ in range(TIMES):
            try:
                data = self._source().read(most)
            except OSError as error:
                failure = self._wire.unreachable(error)
                before, silent = silent, isinstance(error, TimeoutError)
                if self._prompt and silent and before:
                    # A line may stand still; a new one that does so too is a silent server.
                    self._drop()
                    break
            else:
                if data:
                    self._at += len(data)
                    return data
                detail = "the bytes end early"
                failure = Retry("store_failed", place=self._wire.place, detail=detail)
            self._drop()
        assert failure is not None
        raise failure

    def _open_first(self, length: int | None, match: Mapping[str, str]) -> None:
        if length is None or length > 0:
            last = "" if length is None else str(self._at + length - 1)
            wanted = {"range": f"bytes={self._at}-{last}"} if self._at or last else {}
            if (headers := self._open({**wanted, **match})) is not None:
                self.headers, self.size = headers, _whole_size(headers)
                return
        answer = self._wire.ask(Request(method="HEAD", key=self._key, headers=match))
        self.headers = answer.headers
        self.size = int(answer.headers.get("content-length", 0))

    def _source(self) -> Response:
        if self._response is None:
            wanted = {"range": f"bytes={self._at}-{self._end - 1}"}
            if "etag" in self.headers:
                wanted["if-match"] = self.headers["etag"]
            try:
                self._open(wanted)
            except (Conflict, NotFound):
                raise Retry("store_changed", path=shown(self._path)) from None
        if self._response is None:
            raise Retry("store_changed", path=shown(self._path))
        return self._response

    def _open(self, wanted: Mapping[str, str]) -> Mapping[str, str] | None:
        """Ask for it; None when the object ends before the part that is wanted. OSError when the
        connection breaks before that part begins."""
        request = Request(method="GET", key=self._key, headers=wanted, good=(200, 206, 416))
        connection, response = self._wire.begin(request)
        if response.status == 416:
            connection.close()
            return None
        self._connection, self._response = connection, response
        if response.status == 200 and self._at:
            self._skip(response, self._at)
        return response.headers

    def _skip(self, response: Response, count: int) -> None:
        while count and (data := response.read(min(count, _SKIP))):
            count -= len(data)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._response = None
        if connection is not None:
            connection.close()


def _whole_size(headers: Mapping[str, str]) -> int:
    """Of the object, from what is said about the part that came."""
    _, slash, total = headers.get("content-range", "").rpartition("/")
    return int(total) if slash and total.isdigit() else int(headers.get("content-length", 0))
