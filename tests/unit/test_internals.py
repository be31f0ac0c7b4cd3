"""Names every internal of uvicorn and psycopg that our code uses, and fails when one is gone.

No release note announces a change of these, so both packages are capped below the next minor
version. Run this first when you raise a cap: what fails here has to be adapted.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uvicorn
from psycopg import errors, generators, pq, waiting
from psycopg.adapt import Loader, Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from tests.unit.test_house_rules import pins

TOP = Path(__file__).parents[2]
CAPPED = ("uvicorn", "psycopg")
IMPORTED = {
    "psycopg",
    "psycopg.errors",
    "psycopg.generators",
    "psycopg.pq",
    "psycopg.waiting",
    "psycopg.abc.PQGen",
    "psycopg.adapt.Loader",
    "psycopg.adapt.Transformer",
    "psycopg.conninfo.conninfo_to_dict",
    "psycopg.conninfo.make_conninfo",
    "psycopg.pq.abc.PGresult",
    "uvicorn",
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol",
    "uvicorn.protocols.http.httptools_impl.RequestResponseCycle",
    "uvicorn.protocols.http.httptools_impl.STATUS_LINE",
}
"""Everything of the two that our code imports. What is added here needs a check below."""


def requirements() -> Iterator[tuple[str, str]]:
    """Where each of the two is required, and the whole requirement."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    groups = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}
    for group, wanted in groups.items():
        for requirement in wanted:
            if re.split(r"[^\w-]", requirement)[0] in CAPPED:
                yield group, requirement


def test_both_are_required_below_the_next_minor_version() -> None:
    found = dict(requirements())
    assert set(found) == {"server", "postgres", "dev"}
    locked = pins((TOP / "requirements-dev.lock").read_text())
    for requirement in found.values():
        name, cap = re.fullmatch(r"(\w+)\S*,<([\d.]+)", requirement.split()[0]).groups()  # type: ignore[union-attr]
        major, minor = map(int, locked[name].split(".")[:2])
        assert cap == f"{major}.{minor + 1}", requirement


def test_nothing_else_of_them_is_imported() -> None:
    assert set(_imports()) == IMPORTED


def test_a_server_starts_without_psycopg() -> None:
    """It is an extra, and 9 MB that a server on SQLite does not need."""
    code = "import sys; sys.modules['psycopg'] = None; import paddlecloud.server.__main__"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def _imports() -> Iterator[str]:
    for path in (TOP / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from (name for name in names if name.split(".")[0] in CAPPED)


# -- uvicorn: server/http/ (connection_limits, socket_body, _request_parser), server/__main__.py --


@pytest.mark.parametrize(
    "method", ["connection_made", "connection_lost", "data_received", "on_headers_complete"]
)
def test_a_connection_has_the_methods_that_we_extend(method: str) -> None:
    found = vars(httptools_impl.HttpToolsProtocol)[method]
    assert not inspect.iscoroutinefunction(found)


@pytest.mark.parametrize(
    "callback", ["message_begin", "url", "header", "headers_complete", "body", "message_complete"]
)
def test_a_connection_has_the_callbacks_that_our_parser_calls(callback: str) -> None:
    """server/http/_request_parser.py; it also asks `_should_upgrade` and reads `headers`."""
    found = vars(httptools_impl.HttpToolsProtocol)
    assert not inspect.iscoroutinefunction(found[f"on_{callback}"])
    assert list(inspect.signature(found["_should_upgrade"]).parameters) == ["self"]
    assert "self.headers.append((name, value))" in inspect.getsource(found["on_header"])


def test_a_connection_and_its_request_have_the_attributes_that_we_read_and_set() -> None:
    """Looked at while a request is answered whose body has not come yet."""
    found: dict[str, Any] = {}

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        connection, cycle = made[0], made[0].cycle
        found["same scope"] = cycle.scope is connection.scope is scope
        found["raw"] = (scope["raw_path"], scope["query_string"], scope["path"])
        found["connection"] = {
            "connections": connection in connection.connections,
            "parser": hasattr(connection.parser, "feed_data"),
            "scheme": connection.scheme,
            "timeout": connection.timeout_keep_alive_task,
            "paused": (connection.flow.read_paused, connection.flow.write_paused),
            "closing": connection.transport.is_closing(),
        }
        found["before"] = _state(cycle)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        found["answering"] = _state(cycle)
        await send({"type": "http.response.body", "body": b""})
        found["answered"] = _state(cycle)

    made: list[Any] = []

    async def ask() -> bytes:
        config = uvicorn.Config(app, http=httptools_impl.HttpToolsProtocol, log_config=None)
        config.load()
        state = ServerState()

        def connection() -> asyncio.Protocol:
            protocol = config.http_protocol_class
            made.append(protocol(config=config, server_state=state, app_state={}))  # type: ignore[call-arg]
            return made[-1]  # type: ignore[no-any-return]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"PUT /a%20b?c=d HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nab")
        answer = await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        server.close()
        await server.wait_closed()
        return answer

    assert asyncio.run(ask()).startswith(b"HTTP/1.1 200 OK\r\n")
    assert found["same scope"]
    assert found["raw"] == (b"/a%20b", b"c=d", "/a b")
    assert found["connection"] == {
        "connections": True,
        "parser": True,
        "scheme": "http",
        "timeout": None,
        "paused": (False, False),
        "closing": False,
    }
    still = {"disconnected": False, "more_body": True, "body": bytearray(b"ab")}
    still |= {"keep_alive": True, "waiting_for_100_continue": False}
    assert found["before"] == still | {
        "response_started": False,
        "response_complete": False,
        "chunked_encoding": None,
    }
    going = {"response_started": True, "chunked_encoding": True}
    assert found["answering"] == still | going | {"response_complete": False}
    assert found["answered"] == still | going | {"response_complete": True}


def _state(cycle: httptools_impl.RequestResponseCycle) -> dict[str, object]:
    names = (
        "disconnected", "more_body", "keep_alive", "waiting_for_100_continue", "response_started",
        "response_complete", "chunked_encoding",
    )  # fmt: skip
    return {name: getattr(cycle, name) for name in names} | {"body": bytearray(cycle.body)}


def test_reading_can_be_paused() -> None:
    assert {"pause_reading", "resume_reading", "pause_writing"} <= set(vars(FlowControl))


def test_the_line_of_a_status_is_known() -> None:
    assert httptools_impl.STATUS_LINE[431].startswith(b"HTTP/1.1 431 ")
    assert httptools_impl.STATUS_LINE[431].endswith(b"\r\n")


def test_a_server_has_the_methods_that_we_replace_and_the_flags_that_we_set() -> None:
    server = uvicorn.Server(uvicorn.Config("none:app", log_config=None))
    assert server.server_state.connections == set()
    assert (server.should_exit, server.force_exit) == (False, False)
    for name in ("startup", "shutdown", "on_tick"):
        assert inspect.iscoroutinefunction(getattr(server, name)), name
    assert list(inspect.signature(server.on_tick).parameters) == ["counter"]
    assert list(inspect.signature(server.handle_exit).parameters) == ["sig", "frame"]
    for name in ("startup", "shutdown", "run"):
        assert "sockets" in inspect.signature(getattr(server, name)).parameters
    # Set by `startup`, to which we add a listener of our own; `shutdown` closes what is in it.
    assert "self.servers" in inspect.getsource(uvicorn.Server.startup)
    assert "self.servers" in inspect.getsource(uvicorn.Server.shutdown)


# -- psycopg: db/engine/_pg_session.py, db/engine/_pg_listen.py; see also tests/contract -----------


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (psycopg.Connection, "adapters close execute fileno notifies"),
        (pq.PGconn, "consume_input exec_ send_query socket status"),
        (pq.PGresult, "command_status command_tuples ntuples status"),
        (pq.Escaping, "escape_literal"),
        (pq.ConnStatus, "OK"),
        (pq.ExecStatus, "COMMAND_OK TUPLES_OK EMPTY_QUERY"),
        (Transformer, "load_rows set_pgresult"),
        (Loader, "load"),
        (psycopg.Error, "diag sqlstate"),
        (generators, "execute fetch_many"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_psycopg_has_what_we_call(owner: object, names: str) -> None:
    assert [name for name in names.split() if not hasattr(owner, name)] == []


def test_psycopg_takes_the_arguments_that_we_give() -> None:
    assert "interval" in inspect.signature(waiting.wait).parameters
    assert "timeout" in inspect.signature(psycopg.Connection.notifies).parameters
    assert list(inspect.signature(errors.error_from_result).parameters) == ["result", "encoding"]
    assert conninfo_to_dict("postgresql://a:b@c/d")["dbname"] == "d"
    assert make_conninfo("", dbname="d") == "dbname=d"
    assert pq.Escaping().escape_string(b"a'b") == b"a''b"
