"""The layout that the documents of 2020 print."""

from __future__ import annotations

import pytest

from paddlecloud.model.files import layout
from paddlecloud.model.files.snapshot import check_path
from paddlecloud.model.jobs.job import Role
from tests.unit.model.builders import JOB_ID, a_replica


def test_the_files_of_a_trainer_lie_where_the_documents_show_them() -> None:
    assert layout.output_directory(JOB_ID, Role.TRAINER, 2) == f"output/{JOB_ID}/rank-2"
    assert layout.log_file(JOB_ID, "trainer-2") == f"output/{JOB_ID}/log/trainer-2.log"
    assert layout.log_directory(JOB_ID, Role.TRAINER, 2) == f"output/{JOB_ID}/log/rank-2"


def test_the_files_of_a_pserver_have_its_own_name() -> None:
    assert layout.output_directory(JOB_ID, Role.PSERVER, 1) == f"output/{JOB_ID}/pserver-1"
    assert layout.log_file(JOB_ID, "pserver-1") == f"output/{JOB_ID}/log/pserver-1.log"


def test_earlier_attempts_have_a_directory_of_their_own() -> None:
    root = f"output/{JOB_ID}/log/attempt-1"
    assert layout.log_root(JOB_ID, 1) == root
    assert layout.log_file(JOB_ID, "trainer-0", 1) == f"{root}/trainer-0.log"
    assert layout.log_directory(JOB_ID, Role.TRAINER, 0, 1) == f"{root}/rank-0"


def test_every_path_is_a_safe_one() -> None:
    for path in (
        layout.output_root(JOB_ID),
        layout.log_file(JOB_ID, "trainer-0", 3),
        layout.replica_id(JOB_ID, 1, "trainer-0"),
    ):
        check_path(path)


@pytest.mark.parametrize("role", list(Role))
def test_a_worker_has_the_name_that_its_replica_has(role: Role) -> None:
    assert layout.worker_name(role, 17) == a_replica(role=role, rank=17).worker


def test_public_storage_is_shown_as_an_address() -> None:
    want = "paddlecloud-public.bj.bcebos.com/5a87a46f/plsc"
    assert layout.public_bos_url("bj.bcebos.com", "5a87a46f", "plsc") == want
    assert layout.public_bos_url("here", "u", "") == "paddlecloud-public.here/u"


@pytest.mark.parametrize(
    ("replica", "name", "want"),
    [
        (layout.replica_id(JOB_ID, 1, "trainer-12"), "output/a/b", "rank-12/a/b"),
        (layout.replica_id(JOB_ID, 1, "trainer-0"), "log/a", "log/rank-0/a"),
        (layout.replica_id(JOB_ID, 3, "pserver-1"), "output/a", "pserver-1/a"),
        (layout.replica_id(JOB_ID, 1, "trainer-0"), "stdout.log", "stdout.log"),
        (layout.replica_id(JOB_ID, 1, "trainer-0"), "output", "output"),
        ("r-1", "output/a", "output/a"),
    ],
)
def test_outputs_are_called_as_their_owner_knows_them(replica: str, name: str, want: str) -> None:
    assert layout.shown(replica, name) == want
