"""The client's schemas against what the server declares: the client takes all that a server may
answer, and requires nothing that a server does not promise."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from paddlecloud.client import response_schemas, sdk
from paddlecloud.client.response_checks import check
from paddlecloud.client.transport import DONE
from paddlecloud.server.route_table import ROUTES
from paddlecloud.server.schemas.jobs import JobRow, JobView

if TYPE_CHECKING:
    from paddlecloud.client.response_checks import Schema

ANSWERS: dict[str, Schema] = {
    "GET /whoami": response_schemas.WHOAMI,
    "GET /jobs": response_schemas.JOBS,
    "POST /jobs": response_schemas.SUBMITTED,
    "POST /jobs/validate": response_schemas.VALIDATED,
    "GET /jobs/{job_id}": response_schemas.FOLLOWED,
    "POST /jobs/{job_id}/kill": response_schemas.JOB,
    "POST /jobs/{job_id}/delete": response_schemas.DELETED,
    "GET /jobs/{job_id}/history": response_schemas.HISTORY,
    "GET /jobs/{job_id}/files": response_schemas.FILES,
    "GET /jobs/{job_id}/snapshot": response_schemas.SNAPSHOT,
    "GET /jobs/{job_id}/usage": response_schemas.USES,
    "GET /usage": response_schemas.USES,
    "POST /jobs/{job_id}/commands": response_schemas.COMMAND,
    "POST /snapshots": response_schemas.MISSING,
    "POST /blobs": DONE,
    "POST /uploads": response_schemas.UPLOAD,
    "POST /uploads/place": response_schemas.HANDING,
    "POST /uploads/{sha256}/finish": response_schemas.FINISHED,
    "POST /private/files": response_schemas.PRIVATE_FILES,
    "POST /private/addresses": response_schemas.ADDRESSES,
    "POST /private/uploads": response_schemas.PRIVATE_UPLOAD,
    "POST /private/uploads/addresses": response_schemas.ADDRESSES,
    "GET /tokens": response_schemas.TOKENS,
    "POST /tokens": response_schemas.NEW_TOKEN,
    "POST /tokens/{ak}/revoke": response_schemas.TOKEN,
    "POST /gen_token": response_schemas.MAILED,
    "GET /doctor": response_schemas.CHECKS,
    "POST /admin/gc": response_schemas.COLLECTED,
    "GET /notifications": response_schemas.NOTIFICATIONS,
    "POST /notifications": response_schemas.NOTIFICATIONS,
    "POST /notifications/test": response_schemas.DELIVERIES,
    "GET /quota": response_schemas.QUOTA,
    "GET /quota/history": response_schemas.DAYS,
    "GET /admin/plans": response_schemas.PLANS,
    "GET /admin/users": response_schemas.USERS,
    "GET /admin/users/{user_id}": response_schemas.USER,
    "GET /admin/tokens": response_schemas.TOKENS,
    "GET /admin/jobs": response_schemas.JOBS,
    "GET /admin/pools": response_schemas.POOLS,
    "GET /admin/audit": response_schemas.EVENTS,
}
ADDRESSES = frozenset(("addresses", "urls", "ways"))
"""What holds addresses that can be asked."""


def answer_of(name: str) -> Any:
    """What the route of that name is declared to answer."""
    method, _, path = name.partition(" ")
    wanted = re.sub(r"\{[^}]*\}", "{}", f"/api/v1{path}")
    found = [
        route.answer
        for route in ROUTES
        if route.method == method and re.sub(r"\{[^}]*\}", "{}", route.path) == wanted
    ]
    assert len(found) == 1, name
    return found[0]


@pytest.mark.parametrize("name", ANSWERS)
@given(data=st.data())
def test_whatever_a_server_may_answer_is_taken(name: str, data: st.DataObject) -> None:
    drawn = data.draw(responses(name))
    value = msgspec.json.decode(msgspec.json.encode(drawn))
    check(value, ANSWERS[name])


@cache
def responses(name: str) -> st.SearchStrategy[Any]:
    """What the server may answer there; built once, which takes longer than an example."""
    return values(inspect.type_info(answer_of(name)))


def values(kind: Any, field: str = "") -> st.SearchStrategy[Any]:
    """Values of a declared type, as a real server may fill it."""
    match kind:
        case inspect.StructType():
            return struct(kind)
        case inspect.UnionType():
            return st.one_of([values(one, field) for one in kind.types])
        case inspect.ListType():
            return st.lists(values(kind.item_type, field), max_size=2)
        case inspect.TupleType():
            return st.tuples(*(values(item, field) for item in kind.item_types))
        case inspect.DictType() if field == "asked":  # always these
            return st.fixed_dictionaries(dict.fromkeys(("cpu", "memory", "gpu"), st.floats(0, 9)))
        case inspect.DictType():
            return st.dictionaries(st.text(max_size=3), values(kind.value_type, field), max_size=2)
    return plain(kind, field)


def struct(kind: inspect.StructType) -> st.SearchStrategy[Any]:
    made = {field.encode_name: values(field.type, field.encode_name) for field in kind.fields}
    needed = {field.encode_name for field in kind.fields if field.required}
    required = {name: value for name, value in made.items() if name in needed}
    optional = {name: value for name, value in made.items() if name not in needed}
    return st.fixed_dictionaries(required, optional=optional)


def plain(kind: Any, field: str) -> st.SearchStrategy[Any]:
    if isinstance(kind, inspect.IntType):
        least = -1 if field in ("pid", "exit_code", "signal", "version") else 0
        most = 2**20 if field == "part_size" else 2**40
        return st.integers(least if kind.ge is None else kind.ge, most)
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    if field in ADDRESSES and isinstance(kind, inspect.StrType):
        return st.just("https://bucket.example/a?b=c")
    known: dict[type, st.SearchStrategy[Any]] = {
        inspect.FloatType: st.floats(0, 1e12),
        inspect.StrType: st.text(max_size=3),
        inspect.BoolType: st.booleans(),
        inspect.NoneType: st.none(),
        inspect.AnyType: st.none() | st.integers(0, 9) | st.text(max_size=3),
    }
    return known[type(kind)]


def test_a_job_declares_the_fields_that_the_server_sends() -> None:
    """For editors and mypy, which cannot see the keys of an answer."""
    tree = ast.parse(Path(sdk.__file__).read_text(encoding="utf-8"))
    (job,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Job")
    (block,) = (node for node in job.body if isinstance(node, ast.If))
    declared = [ast.unparse(node.target) for node in block.body if isinstance(node, ast.AnnAssign)]
    sent = {field.name for kind in (JobView, JobRow) for field in msgspec.structs.fields(kind)}
    assert declared == sorted(sent | {"notes"})
