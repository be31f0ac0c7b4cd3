"""Which ports of a machine an agent connects to."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from paddlecloud.agent.exec.tunnels import listeners

ROW = (
    "   {n}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000"
    "  {uid}        0 12345 1 0000000000000000 100 0 0 10 0\n"
)


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
