"""The parameters of `Client.submit_job`: those of the command line, with types and docs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client
from paddlecloud.client._job_parameters import JobParameters, SubmitParameters
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.params import PARAMETERS
from tests.unit.client.fake_server import FakeServer

#: What only a command does, and what only a program can give.
COMMAND_ONLY, SDK_ONLY = {"watch_mode"}, {"snapshot", "job_file", "yes"}
SIGNATURE = inspect.signature(Client.submit_job).parameters
NAMED = {name: p for name, p in SIGNATURE.items() if p.kind is p.KEYWORD_ONLY}
DOC = inspect.getdoc(Client.submit_job) or ""


def test_they_are_the_flags_of_the_command() -> None:
    flags = {parameter.name for parameter in PARAMETERS} - COMMAND_ONLY
    assert set(NAMED) == flags | SDK_ONLY


def test_the_methods_that_pass_them_on_know_the_same_types() -> None:
    def types(schema: Any) -> dict[str, str]:
        return {name: kind.__forward_arg__ for name, kind in schema.__annotations__.items()}

    assert types(SubmitParameters) == {name: p.annotation for name, p in NAMED.items()}
    assert {*types(SubmitParameters)} - {*types(JobParameters)} == {"snapshot", "job_file"}


@pytest.mark.parametrize("name", NAMED)
def test_each_is_documented_with_its_default(name: str) -> None:
    found = re.search(rf"^{name}: (.*(?:\n    .*)*)", DOC, re.MULTILINE)
    assert found is not None, f"{name} is not in the docstring"
    default = next((p.default for p in PARAMETERS if p.name == name), None)
    shown = f'"{default}"' if isinstance(default, str) else str(default)
    if default not in (None, "") or name == "description":
        assert f"(default: {shown}" in found[1]


@pytest.mark.parametrize(
    ("name", "instead"), [("watch_mode", "job.wait()"), ("dry_run", "dry_run(")]
)
def test_what_has_no_meaning_in_a_program_is_refused(
    server: FakeServer, client: Client, name: str, instead: str
) -> None:
    calls: list[Any] = [
        client.submit_job,
        client.dry_run,
        lambda **how: client.rerun("last", **how),
    ]
    for call in calls:
        with pytest.raises(Invalid, match=re.escape(instead)) as caught:
            call(files=".", start_cmd="true", **{name: 1})
        assert caught.value.code == "param_not_in_sdk"
    with pytest.raises(Invalid, match="did you mean start_cmd"):
        client.submit_job(files=".", start_cmdd="true")  # type: ignore[arg-type]
    assert server.seen == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"files": 3}, "param_path"),
        ({"files": b"job"}, "param_path"),
        ({"files": ["job"]}, "param_path"),
        ({"requirements": 3}, "param_path"),
        ({"start_cmd": ["sh", "run.sh"]}, "param_type"),
        ({"cpu": "many"}, "param_number"),
        ({"env": 3}, "env_format"),
        ({"instance_count": 1.5}, "param_integer"),
        ({"job_file": 3}, "param_path"),
    ],
    ids=str,
)
def test_values_of_a_wrong_type_are_refused_in_words(
    server: FakeServer, client: Client, tmp_path: Path, wrong: dict[str, Any], code: str
) -> None:
    with pytest.raises(Invalid) as caught:
        client.submit_job(**{"files": tmp_path, "start_cmd": "true", **wrong})
    assert caught.value.code == code
    assert server.seen == []
