"""Keeps every test away from the person who runs it: their settings, their home, the network.

Real processes that a test starts inherit the same clean environment. Only loopback and unix
sockets can be reached from the test process itself; a test that needs more belongs in tests/e2e.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.postgres import (  # noqa: F401 - fixtures for every test
    databases_go_with_their_test,
    postgres_place,
    postgres_url,
)
from tests.s3 import bucket, s3_place, s3_settings  # noqa: F401 - fixtures for every test

# pytest keeps its compiled test files even if the environment forbids bytecode (which programs that
# tests start obey): otherwise every worker compiles all of them again, 10 s of a core each.
sys.dont_write_bytecode = False

# What makes up seven thousand tests stays until the end: to look through it for rubbish again and
# again takes a third of the time in which every worker collects them.
gc.disable()

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program
# that they start, also those whose answer to it is the test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two shared cores make any deadline a coin toss. The same examples each time make a failure of the
# fast tests mean one thing: the change broke something. `explore` looks further, in the slow stage.
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=500, print_blob=True)
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the files with the longest tests first: parallel workers then end together."""
    seconds: Counter[Path] = Counter()
    for item in items:
        marks = [*item.iter_markers("slow"), *item.iter_markers("chaos")]
        seconds[item.path] += max((mark.kwargs.get("seconds", 0) for mark in marks), default=0)
    items.sort(key=lambda item: -seconds[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def paddlecloud_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty PADDLECLOUD_HOME inside an empty HOME, for the whole session."""
    for name in [name for name in os.environ if name.startswith("PADDLECLOUD_")]:
        del os.environ[name]
    home = tmp_path_factory.mktemp("home")
    ours = home / ".paddlecloud"
    ours.mkdir(mode=0o700)
    os.environ.update(HOME=str(home), PADDLECLOUD_HOME=str(ours), PADDLECLOUD_LANG="en")
    return ours


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> None:
    """Refuse connections of this process to anything but this machine."""
    for method in ("connect", "connect_ex"):
        setattr(socket.socket, method, _guarded(getattr(socket.socket, method)))


def _guarded(original: Any) -> Any:
    def connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address[0]}; only loopback is allowed")
        return original(self, address)

    return connect


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine."""
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
