"""The error tree and its way over the wire."""

from __future__ import annotations

import json

import pytest

from paddlecloud.model import errors
from paddlecloud.model.errors import (
    ConfigError,
    Conflict,
    Internal,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    SnapshotMissing,
    StorageFull,
    TooMany,
    Unreachable,
    from_wire,
)


def all_kinds(kind: type[PaddleCloudError] = PaddleCloudError) -> list[type[PaddleCloudError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in all_kinds(child))]


@pytest.mark.parametrize("kind", all_kinds())
def test_the_client_raises_what_the_server_raised(kind: type[PaddleCloudError]) -> None:
    sent = kind("cluster_unknown", cluster="moon", known="default")
    wire = json.loads(json.dumps(sent.to_wire("zh")))
    got = from_wire(kind.status, wire)
    assert type(got) is kind
    assert (got.code, got.params) == (sent.code, sent.params)
    assert got.text("en") == sent.text("zh"), "the server's own words win"


def test_wrong_input_is_wrong_usage_and_the_rest_is_failure() -> None:
    assert {kind for kind in all_kinds() if kind.exit_code == 2} == {Invalid, ConfigError}


def test_only_one_branch_is_worth_repeating() -> None:
    assert {k for k in all_kinds() if issubclass(k, Retry)} == {
        Retry,
        TooMany,
        StorageFull,
        Unreachable,
    }
    assert not issubclass(SnapshotMissing, Retry)
    assert issubclass(SnapshotMissing, Conflict)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (400, Invalid),
        (404, NotFound),
        (422, Refused),
        (500, Internal),
        (599, Internal),
        (418, Invalid),
    ],
)
def test_an_unknown_kind_falls_back_on_its_status(
    status: int, want: type[PaddleCloudError]
) -> None:
    got = from_wire(status, {"kind": "FromTheFuture", "code": "new_code", "message": "new words"})
    assert type(got) is want
    assert got.text("zh") == "new words"


def test_a_malformed_error_is_an_error_still() -> None:
    got = from_wire(502, {"params": "no mapping"})
    assert isinstance(got, Internal)
    assert got.code == "unknown_answer"
    assert got.text("en")


def test_the_sentence_has_its_values_in_both_languages() -> None:
    error = Invalid("wall_time_format", name="wall_time", value="30")
    assert str(error) == error.text("en")
    assert "30" in error.text("en")
    assert "30" in error.text("zh")
    assert error.text("zh") != error.text("en")


def test_the_tree_is_drawn_as_it_is() -> None:
    for kind in all_kinds():
        assert kind.__name__ in (errors.__doc__ or "")
