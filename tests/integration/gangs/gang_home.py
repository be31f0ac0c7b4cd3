"""A home with a real server and agent for jobs of several replicas, and what such jobs do.

The ranks of these jobs write what they know into their log as JSON, one object a line, so a test
asks the log of each worker and not a stand-in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client
from paddlecloud.client.sdk import Job
from tests.integration.faults.home import Home

RANK = """
import json, os, signal, socket, sys, time

env = dict(os.environ)
role = env["TRAINING_ROLE"]


def ports():
    own = [int(env["PADDLE_PORT"])]
    gloo = env.get("PADDLE_GLOO_HTTP_ENDPOINT", "")
    if role == "PSERVER" and env["PADDLE_TRAINER_ID"] == "0":
        own.append(int(gloo.rpartition(":")[2]))
    return own


def listen():
    held = []
    for port in ports():
        place = socket.socket()
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("", port))
        place.listen()
        held.append(place)
    return held


def reach(timeout=30):
    # Connect to everybody in the list, ourselves too, as soon as they listen.
    peers = env.get("PADDLE_TRAINER_ENDPOINTS") or env["PADDLE_PSERVERS_IP_PORT_LIST"]
    until = time.monotonic() + timeout
    for peer in peers.split(","):
        host, _, port = peer.partition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
    return peers.split(",")


def meet(held):
    # Reach every peer, and wait until every peer has reached us.
    peers = reach()
    for _ in peers if "PADDLE_TRAINER_ENDPOINTS" in env else ():
        held[0].accept()[0].close()


def say(**more):
    print(json.dumps(more), flush=True)
"""


class GangHome:
    """One home and its client."""

    def __init__(self, home: Home, client: Client, files: Path) -> None:
        self.home = home
        self.client = client
        self.files = files

    def submit(self, program: str, before: str = RANK, **parameters: Any) -> Job:
        """A gang whose every rank runs `program` after the lines of `RANK`."""
        name = f"job-{len(list(self.files.iterdir()))}"
        directory = self.files / name
        directory.mkdir()
        (directory / "rank.py").write_text(before + program)
        plain: dict[str, Any] = {"start_cmd": "python3 -SE rank.py"}
        return self.client.submit_job(files=str(directory), **(plain | parameters))

    def end(self, job: Job, timeout: float = 60) -> Job:
        return self.client.wait(job.id, timeout=timeout)

    def text(self, job: Job, worker: str) -> str:
        return b"".join(self.client.logs(job.id, worker=worker)).decode()

    def said(self, job: Job, worker: str) -> list[dict[str, Any]]:
        """The objects that one worker wrote; other lines are left out."""
        lines = self.text(job, worker).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def a_gang_home(top: Path, settings: str = "") -> Iterator[GangHome]:
    """Everything that runs in it is ended afterwards."""
    home = Home(top / "home")
    files = top / "files"
    files.mkdir()
    home.path.mkdir(mode=0o700)
    (home.path / "server.toml").write_text(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PADDLECLOUD_HOME", str(home.path))
        client = Client()
        client.environ = dict(os.environ)
        try:
            yield GangHome(home, client, files)
        finally:
            client.close()
            home.clear()
