"""Checks that the ports of a replica are free just before it starts, and finds what holds them.

A port that another program holds would end a training process with an assertion that does not name
it. Nothing is reserved: the first program to bind a port has it, and the next attempt gets others.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LISTENING = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def taken(ports: Iterable[int], *, named: bool = True) -> str:
    """The first of these that is in use, with the program that holds it if that is visible and may
    be `named`; empty when all are free."""
    for port in ports:
        if not is_free(port):
            holder = holder_of(port) if named else ""
            return f"{port} ({holder})" if holder else str(port)
    return ""


def is_free(port: int) -> bool:
    """Whether a program could listen on this port now, on every address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def holder_of(port: int) -> str:
    """Name and pid of the program that holds this port; empty where it is not visible."""
    wanted = {f"socket:[{inode}]" for table in _TABLES for inode in _inodes(table, port)}
    for pid in os.listdir("/proc") if wanted else ():  # noqa: PTH208 - names are all we need
        with suppress(OSError):
            if pid.isdigit() and not wanted.isdisjoint(_open_files(pid)):
                with open(f"/proc/{pid}/comm") as name:  # noqa: PTH123 - a file of the kernel
                    return f"{name.read().strip()}, pid {pid}"
    return ""


def _inodes(table: str, port: int) -> Iterator[str]:
    """Sockets of one table that listen on this port, or are bound to it."""
    with suppress(OSError), open(table) as lines:  # noqa: PTH123 - a file of the kernel
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[1].endswith(f":{port:04X}") and fields[3] == _LISTENING:
                yield fields[9]


def _open_files(pid: str) -> Iterator[str]:
    place = f"/proc/{pid}/fd"
    for number in os.listdir(place):  # noqa: PTH208 - as above
        with suppress(OSError):
            yield os.readlink(f"{place}/{number}")  # noqa: PTH115 - as above
