"""Secrets from the command line to the job: what the job finds, and where else a value is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cli.person import Person, until

VALUE = "v4lue-of-wandb"
KEY = "-----BEGIN KEY-----\nk3y\n-----END KEY-----\n"


@pytest.fixture(scope="module")
def person(shared: Person) -> Person:
    return shared


def holding(top: Path, text: str) -> list[str]:
    """The files below a directory that contain a text."""
    found = []
    for path in top.rglob("*"):
        try:
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(str(path.relative_to(top)))
        except OSError:  # deleted, or a socket
            continue
    return found


def test_a_job_gets_its_secrets_and_nothing_else_has_them(person: Person, tmp_path: Path) -> None:
    done = person.types("secret", "set", "wandb", stdin=f"{VALUE}\n")
    assert (done.code, VALUE in done.out + done.err) == (0, False)
    assert person.types("secret", "set", "deploy.key", stdin=KEY).code == 0
    listed = person.types("secret", "list", "--json").json
    assert [row["name"] for row in listed] == ["deploy.key", "wandb"]
    flag = tmp_path / "seen"
    command = (
        "cd $PADDLECLOUD_SECRETS; stat -c '%a %n' *; wc -c < wandb; wc -c < deploy.key;"
        f' test "$WANDB" = "$(cat wandb)" && echo same; until [ -e {flag} ]; do sleep 0.05; done'
    )
    job_id = person.submits(command, "--secret", "wandb=WANDB", "--secret", "deploy.key")
    until(lambda: "same" in person.types("logs", job_id).out)
    assert person.types("logs", job_id).out.splitlines() == [
        "600 deploy.key",
        "600 wandb",
        str(len(VALUE)),
        str(len(KEY)),
        "same",
    ]
    at = f"agent/replicas/{job_id}.1.trainer-0/secrets/wandb"
    assert holding(person.home, VALUE) == [at]
    same = 'test "$WANDB" = "$(cat $PADDLECLOUD_SECRETS/wandb)"'
    beside = person.runs("exec", job_id, "--", "sh", "-c", same)
    assert beside.code == 0, beside.err
    flag.touch()
    assert person.waits_for(job_id)["job_status"] == "success"
    assert holding(person.home, VALUE) == []
    view = person.types("query_job", job_id, "--json")
    assert view.json["secrets"] == ["wandb=WANDB", "deploy.key"]
    rerun = person.types("rerun", job_id, "--start_cmd=cat $PADDLECLOUD_SECRETS/wandb", "--json")
    assert person.waits_for(rerun.json["job_id"])["secrets"] == ["wandb=WANDB", "deploy.key"]
    assert VALUE not in view.out + rerun.out + rerun.err
    assert VALUE not in person.types("diff", job_id, rerun.json["job_id"]).out
    assert person.types("logs", rerun.json["job_id"]).out == VALUE


def test_a_secret_that_is_deleted_before_the_start_fails_the_job(person: Person) -> None:
    person.types("secret", "set", "gone", stdin="x")
    blocking = person.submits("sleep 600", f"--cpu={os.cpu_count()}")
    waiting = person.submits("true", "--secret", "gone")
    until(lambda: person.sees(waiting)["job_status"] == "queue")
    assert person.types("secret", "rm", "gone").code == 0
    person.types("kill_job", blocking)
    view = person.waits_for(waiting)
    assert view["job_status"] == "failed"
    assert "the secret gone was deleted after the job was submitted" in view["error_msg"]
    assert view["attempts"] == 1


def test_mistakes_are_named(person: Person) -> None:
    job = ("submit_job", "--files=empty", "--start_cmd=true")
    (person.here / "empty").mkdir(exist_ok=True)
    assert "paddlecloud secret set nope" in person.types(*job, "--secret", "nope").err
    for wrong, code in (
        (("secret", "set"), 2),
        (("secret", "rm", "nope"), 1),
        (("secret", "set", "a/b"), 2),
        ((*job, "--secret=a/b"), 2),
        ((*job, "--secret=a=1X"), 2),
        ((*job, "--secret=a=PADDLECLOUD_X"), 2),
        ((*job, "--secret=a=X", "--env=X=1"), 2),
        ((*job, "--secret=a", "--secret=a=Y"), 2),
    ):
        done = person.types(*wrong, stdin="value")
        assert (done.code, done.err.count("\n")) == (code, 1), wrong
    assert "is empty" in person.types("secret", "set", "x", stdin="").err
