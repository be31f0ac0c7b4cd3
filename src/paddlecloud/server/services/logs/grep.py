"""Runs searches in logs: each is a process (`grepper`) whose frames are passed on as they come.

How many may run at a time is the business of `searches`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from paddlecloud.model.errors import Invalid
from paddlecloud.model.logs.frames import trouble
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_long_thread
from paddlecloud.server.schemas.logs import LogsQuery
from paddlecloud.server.services.logs import read
from paddlecloud.server.services.logs.read import Reading

MOST_WORKERS = 200
"""Each is up to two open files."""
SECONDS = 5
"""Of computing for 256 KiB of a log, which takes a thousandth of that."""
BLOCK = 256 * 1024
_HOME = str(Path(__file__).resolve().parents[4])
_COMMAND = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from paddlecloud.server.services.logs.grep_worker import main; sys.exit(main())"
)


class Search:
    """A search that runs; whoever drops it ends it, heard to its end or not."""

    def __init__(self, process: subprocess.Popen[bytes], leave: Callable[[], None]) -> None:
        self._process = process
        self._leave: Callable[[], None] | None = leave

    async def frames(self, job_id: str) -> AsyncIterator[bytes]:
        """What it finds, cut anywhere."""
        reader = asyncio.StreamReader(limit=BLOCK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        try:
            while piece := await reader.read(BLOCK):
                yield piece
            if await in_long_thread(self._process.wait):
                yield trouble("grep_died", json.dumps({"job_id": job_id}))
        finally:
            transport.close()
            self.close()

    def close(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            self._process.kill()
            self._process.wait()
            leave()

    def __del__(self) -> None:
        self.close()


async def begun(deps: Deps, user: str, reading: Reading, query: LogsQuery) -> Search:
    """A process that searches these logs; TooMany when there are enough of them."""
    if len(reading.workers) > MOST_WORKERS:
        raise Invalid("grep_workers", limit=MOST_WORKERS, count=len(reading.workers))
    deps.searches.enter(user)
    try:
        process = await in_long_thread(_start, deps, reading, query)
    except BaseException:
        deps.searches.leave(user)
        raise
    return Search(process, partial(deps.searches.leave, user))


def _start(deps: Deps, reading: Reading, query: LogsQuery) -> subprocess.Popen[bytes]:
    now = read.opened(deps, reading)
    times: list[int] = []
    tasks: list[dict[str, object]] = []
    try:
        for worker, path, file, offset in zip(
            reading.workers, now.paths, now.files, reading.offsets, strict=True
        ):
            if file is None:
                continue
            noted = None
            with suppress(OSError):
                noted = deps.logs.open_times(path)
                times.append(noted)
            task = {"worker": worker, "log": file.fd, "times": noted, "offset": offset}
            task |= {"end": file.size(), "modified": file.modified()}
            tasks.append(task | {"notes": [] if noted else deps.logs.notes(path, 0, 1)})
        kept = [file.fd for file in now.files if file is not None]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _COMMAND, _HOME],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[*kept, *times],
            cwd="/",
        )
    finally:
        for fd in times:
            os.close(fd)
    asked: dict[str, object] = {"pattern": query.grep, "logs": tasks}
    asked |= {"whole": bool(query.complete), "seconds": SECONDS}
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
    return process
