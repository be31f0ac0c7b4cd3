"""The agent reads what the server says of a run, by the same names and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec

from paddlecloud.agent.server_link import orders
from paddlecloud.server.schemas.agent import RunOrder
from tests.unit.agent.runs import said


def written() -> dict[str, str]:
    """The names of the agent's own `RunOrder` with their types: it exists for the checker alone."""
    tree = ast.parse(Path(orders.__file__).read_text())
    (found,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == "RunOrder"
    )
    return {
        ast.unparse(field.target): ast.unparse(field.annotation)
        for field in found.body
        if isinstance(field, ast.AnnAssign)
    }


def test_the_server_and_the_agent_know_the_same_names() -> None:
    types = RunOrder.__annotations__
    fields = msgspec.structs.fields(RunOrder)
    assert written() == {field.encode_name: types[field.name] for field in fields}


def test_what_a_server_of_before_does_not_say_means_the_same_to_both() -> None:
    optional = {
        field.encode_name: field.default
        if field.default is not msgspec.NODEFAULT
        else field.default_factory()
        for field in msgspec.structs.fields(RunOrder)
        if not field.required
    }
    assert optional == orders.DEFAULTS


def test_an_order_is_whole_whoever_gave_it() -> None:
    today = msgspec.to_builtins(RunOrder(**said()))
    assert orders.run_of({"run": said()}, 1.0) == today | {"grace": 1.0}
    assert orders.run_of({"run": today | {"uid": 7}}, 1.0) == today | {"uid": 7, "grace": 1.0}
    assert orders.run_of({"run": None}, 1.0) is None
    assert orders.run_of({}, 1.0) is None
