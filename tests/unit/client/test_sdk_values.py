"""Values that no command line can give, but a program can: refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client
from paddlecloud.messages import LANGUAGES
from paddlecloud.model.errors import Invalid, Refused
from tests.unit.client.fake_server import FakeServer, ok

JOB = "job-" + "1" * 32


def refused(call: Any, *args: Any, **how: Any) -> str:
    with pytest.raises(Invalid) as caught:
        call(*args, **how)
    for lang in LANGUAGES:
        assert caught.value.text(lang)
    return caught.value.code


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_names_that_no_file_can_have(server: FakeServer, client: Client, name: str) -> None:
    assert refused(client.submit_job, files=name, start_cmd="true") == "files_missing"
    assert refused(client.get_files, JOB, download_dir=name) == "download_failed"
    assert refused(client.get_files, JOB, download_dir=name, resume=True) == "download_failed"
    assert server.seen == []


def test_a_download_directory_that_is_no_path(server: FakeServer, client: Client) -> None:
    assert refused(client.get_files, JOB, download_dir=3) == "download_failed"
    assert server.seen == []


@pytest.mark.parametrize("job_id", [None, 3, b"job-1", [JOB]])
def test_ids_that_are_no_text(server: FakeServer, client: Client, job_id: Any) -> None:
    for call in (client.get_files, client.query_job, client.kill_job, client.logs, client.rerun):
        assert refused(call, job_id) == "job_id_format"
    assert server.seen == []


@pytest.mark.parametrize("unset", [3, [3], [None], b"A", [["A"]]])
def test_names_to_unset_that_are_no_text(server: FakeServer, client: Client, unset: Any) -> None:
    spec = {"start_cmd": "true", "snapshot": "s", "env": {}, "public_bos": 1, "bos_url": ""}
    server.routes[f"GET /api/v1/jobs/{JOB}/spec"] = [ok({"spec": spec})]
    assert refused(client.rerun, JOB, unset=unset) == "rerun_unset"


def test_a_whole_home_needs_a_yes(server: FakeServer, client: Client) -> None:
    unsure: tuple[dict[str, Any], ...] = ({}, {"yes": False})
    for how in unsure:
        assert refused(client.submit_job, files="/", start_cmd="true", **how) == "files_whole_disk"
    assert refused(client.dry_run, files="/", start_cmd="true") == "files_whole_disk"
    assert server.seen == []


def test_a_job_file_may_be_named(server: FakeServer, client: Client, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('start_cmd = "true"\nfiles = "nowhere"\n')
    assert refused(client.submit_job, job_file=tmp_path / "job.toml") == "files_missing"
    assert refused(client.submit_job, job_file=tmp_path / "none.toml") == "job_file_unreadable"
    assert server.seen == []


def test_a_secret_does_not_travel_in_the_clear() -> None:
    with (
        Client(host="http://cloud.example", ak="a", sk="b") as client,
        pytest.raises(Refused) as caught,
    ):
        client.set_secret("wandb", "value")
    assert caught.value.code == "secrets_plain"


def test_secrets_are_sent_in_base64(server: FakeServer, client: Client) -> None:
    server.routes["POST /api/v1/secrets"] = [ok({"name": "wandb"})] * 2
    for value in ("值", "值".encode()):
        client.set_secret("wandb", value)
    assert [seen.json for seen in server.seen] == [{"name": "wandb", "value": "5YC8"}] * 2
    assert refused(client.set_secret, "a/b", "x") == "secret_name"
    assert refused(client.delete_secret, "..") == "secret_name"


@pytest.mark.parametrize("wrong", [None, 3, b"ak", "", " "])
def test_what_is_to_be_part_of_a_path_is_text(
    server: FakeServer, client: Client, wrong: Any
) -> None:
    admin = client.admin
    calls: list[Any] = [client.revoke_token, client.set_quota, admin.user, admin.set_user]
    calls += [admin.delete_user, admin.create_token, admin.revoke_token]
    for call in calls:
        assert refused(call, wrong) == "argument_text"
    if wrong is not None:
        assert refused(client.quota, wrong) == "argument_text"
    assert server.seen == []


def test_other_values_of_a_wrong_type(server: FakeServer, client: Client) -> None:
    assert refused(client.list_jobs, limit="5") == "argument_number"
    assert refused(client.wait, JOB, timeout="5") == "argument_number"
    assert refused(client.wait, JOB, timeout=float("nan")) == "argument_number"
    for command in ("ls -l", b"ls", ["ls", 3]):
        assert refused(client.exec, JOB, command) == "exec_command_words"
    assert refused(client.create_token, name=b"laptop") == "argument_json"
    assert refused(client.set_notifications, events={1, 2}) == "argument_json"
    assert refused(Client, 3) == "argument_text"
    assert server.seen == []
