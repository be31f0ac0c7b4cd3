"""Typical mistakes, and what is suggested for each: the right thing or nothing."""

from __future__ import annotations

import pytest

from paddlecloud.cli import registry
from paddlecloud.cli.parser import parse
from paddlecloud.model.errors import Invalid

ID = "job-" + "0123456789abcdef" * 2

COMMANDS = [
    ("sever start", "server start"),
    ("sever", "server"),
    ("server_start", "server start"),
    ("serverstart", "server start"),
    ("start server", "server start"),
    ("server stat", "server status"),
    ("server log", "server logs"),
    ("server up", "server start"),
    ("qury_job", "query_job"),
    ("submitjob", "submit_job"),
    ("submit-job", "submit_job"),
    ("Submit_Job", "submit_job"),
    ("list_job", "list_jobs"),
    ("lsit_jobs", "list_jobs"),
    ("get_file", "get_files"),
    ("get_token", "gen_token"),
    ("plcs", "plsc"),
    ("tpo", "top"),
    ("hlep", "help"),
    ("jobs", "list_jobs"),
    ("ps", "list_jobs"),
    ("ls", "list_jobs"),
    ("squeue", "list_jobs"),
    ("get jobs", "list_jobs"),
    ("get pods", "list_jobs"),
    ("status", "list_jobs"),
    (f"status {ID}", "query_job"),
    (f"describe {ID}", "query_job"),
    (f"job {ID}", "query_job"),
    (ID, f"query_job {ID}"),
    ("job list", "list_jobs"),
    ("sbatch run.sh", "submit_job"),
    ("run --files=job", "submit_job"),
    (f"scancel {ID}", "kill_job"),
    (f"stop {ID}", "kill_job"),
    (f"cancel {ID}", "kill_job"),
    (f"rm {ID}", "delete_job"),
    (f"cp {ID} .", "get_files"),
    (f"download {ID}", "get_files"),
    (f"tail -f {ID}", "logs"),
    (f"restart {ID}", "rerun"),
    (f"ssh {ID}", "exec"),
    ("nvidia-smi", "top"),
    ("login", "gen_token"),
    ("sinfo", "admin pool list"),
    ("token ls", "token list"),
    ("token rm x", "token revoke"),
    ("config shwo", "config show"),
    ("admin user crate", "admin user create"),
    ("admin user remove x", "admin user delete"),
    ("admin job stop x", "admin job kill"),
]
NONE = ["xyz123", "restart", "train.py", "python", "x", "", "exit", "test", "quit", "server sta",
        "admin frobnicate", "--jsno list_jobs"]  # fmt: skip
FLAGS = [
    ("logs --tail=5", "-n"),
    ("logs --tail 5", "-n"),
    ("logs --folow", "--follow"),
    ("logs --last=5", "-n"),
    ("logs -c trainer-1", "-w"),
    ("logs --job=x", "--job_id"),
    ("logs --job-id=x", "--job_id"),
    ("submit_job --timeout=60", "--wall_time"),
    ("submit_job --time=1:00", "--wall_time"),
    ("submit_job --dir=.", "--files"),
    ("submit_job --workdir=.", "--files"),
    ("submit_job --fiels=.", "--files"),
    ("submit_job --start-cmd=x", "--start_cmd"),
    ("submit_job --command=x", "--start_cmd"),
    ("submit_job --name=x", "--job_name"),
    ("submit_job --gpus=1", "--gpu"),
    ("submit_job --mem=4G", "--memory"),
    ("submit_job --replicas=2", "--instance_count"),
    ("submit_job --nodes=2", "--instance_count"),
    ("submit_job --instance_cout=2", "--instance_count"),
    ("submit_job --watch", "--watch_mode"),
    ("submit_job --follow", "--watch_mode"),
    ("submit_job --partition=x", "--cluster"),
    ("submit_job -e A=1", "--env"),
    ("submit_job --retries=1", "--max_retries"),
    ("submit_job --desc=x", "--description"),
    ("list_jobs --status=running", "--state"),
    ("list_jobs -a", "--all"),
    ("list_jobs -o json", "--json"),
    ("list_jobs --jsno", "--json"),
    ("get_files --output=x", "--download_dir"),
    ("get_files -o x", "--download_dir"),
    ("query_job --output=json", "--json"),
    ("top --onec", "--once"),
]
NO_FLAGS = ["submit_job --zzzzqqq", "logs -x", "server stop --force", "admin gc --days=3",
            "list_jobs --verbose", "kill_job --yes", "query_job --pool=x"]  # fmt: skip


@pytest.mark.parametrize(("typed", "want"), COMMANDS)
def test_a_wrong_command_gets_the_right_one(typed: str, want: str) -> None:
    assert refused(typed) == ("command_meant", want)


@pytest.mark.parametrize("typed", NONE)
def test_no_command_is_suggested_where_none_is_clear(typed: str) -> None:
    code, meant = refused(typed)
    assert (code in ("command_unknown", "command_unknown_in"), meant) == (True, None)


@pytest.mark.parametrize(("typed", "want"), FLAGS)
def test_a_wrong_flag_gets_the_right_one(typed: str, want: str) -> None:
    assert refused(typed) == ("flag_meant", want)


@pytest.mark.parametrize("typed", NO_FLAGS)
def test_no_flag_is_suggested_where_none_is_clear(typed: str) -> None:
    assert refused(typed) == ("flag_unknown", None)


def test_a_mistake_in_a_group_names_what_the_group_has() -> None:
    with pytest.raises(Invalid) as caught:
        registry.find(["server", "frobnicate"])
    assert "start, run, check, stop, status, logs" in caught.value.text("en")


def test_the_sentence_names_what_was_typed() -> None:
    with pytest.raises(Invalid) as caught:
        registry.find(["sever", "start", "--json"])
    assert caught.value.text("en") == "unknown command sever start; did you mean server start?"


def refused(typed: str) -> tuple[str, object]:
    with pytest.raises(Invalid) as caught:
        parse(*registry.find(typed.split(" ")))
    return caught.value.code, caught.value.params.get("meant")
