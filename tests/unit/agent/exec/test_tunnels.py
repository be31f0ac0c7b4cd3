"""Which ports of a machine an agent connects to."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.exec.commands import Commands
from paddlecloud.agent.exec.tunnels import Refusal, Tunnels, listeners
from paddlecloud.agent.registry import Stage, Tracked
from paddlecloud.agent.replica import records

ROW = (
    "   {n}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000"
    "  {uid}        0 12345 1 0000000000000000 100 0 0 10 0\n"
)


class Here:
    """An agent with one replica."""

    def __init__(self, tracked: Tracked | None) -> None:
        self.registry = self
        self._tracked = tracked

    def get(self, _replica: str) -> Tracked | None:
        return self._tracked


def tunnels(root: Path, uid: int | None, stage: Stage = Stage.LAUNCHED) -> Tunnels:
    tracked = Tracked(id="r", fence=1, root=root, run=None, acked=0)
    tracked.stage, tracked.started = stage, {"pid": 1}
    records.write(root / records.ORDER, {"uid": uid})
    context: Any = Here(tracked)
    return Tunnels(context, Commands.__new__(Commands))


def test_only_ports_of_its_own_replicas_and_users(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        tunnels(tmp_path, None)._check_port("r", port)
        tunnels(tmp_path, os.getuid())._check_port("r", port)
        with pytest.raises(Refusal, match="foreign"):
            tunnels(tmp_path, os.getuid() + 1)._check_port("r", port)
        with pytest.raises(Refusal, match="over"):
            tunnels(tmp_path, None, Stage.OVER)._check_port("r", port)
        nothing: Any = Here(None)
        with pytest.raises(Refusal, match="over"):
            Tunnels(nothing, Commands.__new__(Commands))._check_port("r", port)


def test_the_owner_of_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert listeners(port) == {os.getuid()}
    assert listeners(port) == set()


def test_owners_of_both_families_count_and_connections_do_not(tmp_path: Path) -> None:
    rows = [("0100007F", 80, "0A", 1001), ("0100007F", 80, "01", 1002), ("0100007F", 81, "0A", 7)]
    v6 = [("0" * 32, 80, "0A", 1003)]
    for name, found in (("tcp", rows), ("tcp6", v6)):
        lines = [
            ROW.format(n=n, address=address, port=port, state=state, uid=uid)
            for n, (address, port, state, uid) in enumerate(found)
        ]
        (tmp_path / name).write_text("  sl  local_address ...\n" + "".join(lines))
    assert listeners(80, proc=tmp_path) == {1001, 1003}
    assert listeners(81, proc=tmp_path) == {7}
    assert listeners(82, proc=tmp_path / "missing") == set()
