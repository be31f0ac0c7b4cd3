"""Whether a port is free, asked of the system itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paddlecloud.agent.replica import _ports

NOBODYS = range(65400, 65536)
"""Beyond the ports of gangs, so that no test that runs beside this one has them."""


@pytest.fixture
def squatter() -> Iterator[socket.socket]:
    """Listens on one address of this machine only."""
    for port in NOBODYS:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.9.9", port))
        except OSError:
            held.close()
            continue
        with closing(held):
            held.listen()
            yield held
        return


def test_a_port_that_somebody_listens_on_is_taken_and_its_holder_named(
    squatter: socket.socket,
) -> None:
    port = squatter.getsockname()[1]
    name = Path("/proc/self/comm").read_text().strip()
    assert not _ports.is_free(port)
    assert _ports.taken([port]) == f"{port} ({name}, pid {os.getpid()})"
    assert _ports.taken([port], named=False) == str(port)


def test_a_port_is_free_again_once_it_is_let_go(squatter: socket.socket) -> None:
    port = squatter.getsockname()[1]
    with closing(socket.create_connection(("127.0.9.9", port))) as caller:
        inside, _ = squatter.accept()
        inside.close()
        caller.recv(1)
    squatter.close()
    assert _ports.is_free(port)
    assert _ports.taken([port]) == ""
    assert _ports.holder_of(port) == ""


def test_no_ports_are_free_ports() -> None:
    assert _ports.taken(()) == ""
