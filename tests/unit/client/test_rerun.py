"""Parameters of a job that is run again, and what two jobs differ in, as values."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client import _diff as client_diff
from paddlecloud.client import rerun as client_rerun
from paddlecloud.client import submit as client_submit
from paddlecloud.client.rerun import parameters, rerun
from paddlecloud.client.sdk import Client
from paddlecloud.messages import LANGUAGES
from paddlecloud.model.errors import Conflict, Invalid
from paddlecloud.model.jobs.job import JobType
from paddlecloud.model.jobs.params import parse_parameters
from paddlecloud.model.jobs.spec_codec import spec_from_wire, spec_to_wire, with_job_type
from tests.unit.client.fake_server import FakeServer, ok

BUCKET = "b.bj.bcebos.com/x"
SNAPSHOT = "sha256:" + "0" * 64
FULL: dict[str, Any] = {
    "start_cmd": "sh run.sh",
    "job_name": "mine",
    "snapshot": SNAPSHOT,
    "directory": "job",
    "wall_time": 3600,
    "cpu": 2.5,
    "memory": 2**30,
    "env": {"A": "1", "B": "2"},
    "max_retries": 3,
    "retry_exit_codes": "101,139",
    "hang_timeout": 600,
    "priority": "high",
    "requirements": "numpy\n",
    "description": "words",
}


def asked(job_type: JobType = JobType.CPU, **changes: Any) -> dict[str, Any]:
    """The spec of a job as the server gives it, after it has decided what was left open."""
    return spec_to_wire(with_job_type(spec_from_wire(FULL | changes), job_type))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("job_type", list(JobType))
def test_without_changes_it_is_the_same_job(job_type: JobType, count: int) -> None:
    wire = asked(job_type, instance_count=count)
    again = parse_parameters({**parameters(wire, {}), "files": "."})
    again |= {name: wire[name] for name in ("snapshot", "directory", "inherited_env")}
    found = spec_from_wire({name: value for name, value in again.items() if name in wire})
    assert spec_to_wire(found) == wire


def test_what_is_given_wins_and_the_environment_is_added_to() -> None:
    changes = {"start_cmd": "true", "env": ["B=3", "C=4"], "memory": "4G", "cluster": None}
    found = parameters(asked(), changes)
    assert (found["start_cmd"], found["memory"]) == ("true", "4G")
    assert found["env"] == {"A": "1", "B": "3", "C": "4"}
    assert found["cluster"] == "default"


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"job_type": "gpu"}, {"gpu", "distribute_job_type"}),
        ({"gpu": 2}, {"job_type"}),
        ({"instance_count": 1}, {"distribute_job_type"}),
        ({"job_type": "gpu", "gpu": 1}, {"distribute_job_type"}),
    ],
)
def test_what_followed_from_a_parameter_follows_again(
    changes: dict[str, Any], gone: set[str]
) -> None:
    wire = asked(instance_count=2)
    before = set(parameters(wire, {}))
    assert {"job_type", "gpu", "distribute_job_type"} <= before
    assert before - set(parameters(wire, changes)) == gone
    parse_parameters({**parameters(wire, changes), "files": "."})


def test_a_variable_can_be_left_out() -> None:
    assert parameters(asked(), {"unset": ["A"]})["env"] == {"B": "2"}
    assert parameters(asked(), {"unset": "A", "env": ["C=3"]})["env"] == {"B": "2", "C": "3"}
    assert "env" in parameters(asked(), {"unset": ["A", "B"]})
    with pytest.raises(Invalid) as caught:
        parameters(asked(), {"unset": ["GONE"]})
    for lang in LANGUAGES:
        assert "GONE" in caught.value.text(lang) and "A, B" in caught.value.text(lang)


def test_a_flag_can_be_taken_back() -> None:
    found = parameters(asked(), {"unset": ["wall_time", "A", "cpu"]})
    assert not {"wall_time", "cpu"} & found.keys()
    assert found["env"] == {"B": "2"}
    assert "memory" in parameters(asked(env={"memory": "x"}), {"unset": "memory"})
    assert "env" not in parameters(asked(), {"unset": ["env"]})


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"unset": "memory", "memory": "1G"}, "memory: given"),
        ({"unset": ["A", "B"], "env": ["B=3"]}, "B: given"),
        ({"unset": ["B", "cpu"], "env": {"B": "3"}, "cpu": 2}, "B, cpu: given"),
        ({"unset": [""]}, "--unset names nothing"),
        ({"unset": ["A", " "]}, "--unset names nothing"),
    ],
)
def test_what_nobody_can_mean_is_refused(changes: dict[str, Any], want: str) -> None:
    with pytest.raises(Invalid) as caught:
        parameters(asked(), changes)
    assert caught.value.text("en").startswith(want)
    assert "--unset" in caught.value.text("zh")


def test_all_variables_can_be_replaced() -> None:
    assert parameters(asked(), {"unset": "env", "env": ["B=3"]})["env"] == {"B": "3"}


def test_what_follows_from_a_flag_that_is_taken_back_follows_again() -> None:
    wire = asked(JobType.GPU, gpu=2)
    assert not {"gpu", "job_type"} & parameters(wire, {"unset": "gpu"}).keys()
    parse_parameters({**parameters(wire, {"unset": "gpu"}), "files": "."})


@pytest.mark.parametrize("public", ["1", 1, True])
def test_a_job_that_leaves_its_own_bucket_keeps_no_address_of_it(public: object) -> None:
    private = asked(public_bos=0, bos_url="b.bj.bcebos.com/x")
    assert parameters(private, {})["bos_url"]
    assert parameters(private, {"public_bos": "0"})["bos_url"]
    assert "bos_url" not in parameters(private, {"public_bos": public})


@pytest.mark.parametrize("name", ["files", "file"])
def test_a_directory_may_be_given_by_either_name(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found: list[object] = []

    def submit(_: Client, given: dict[str, Any], **__: object) -> dict[str, Any]:
        found.append(given["files"])
        return {"job": {}, "notes": []}

    monkeypatch.setattr(client_rerun, "submit", submit)
    server.routes["GET /api/v1/jobs/job-1/spec"] = [ok({"spec": asked(requirements="")})]
    rerun(client, "job-1", {name: "other"})
    assert found == ["other"]


@pytest.mark.parametrize(
    ("first", "changes"),
    [
        ({"public_bos": 0, "bos_url": BUCKET}, {"public_bos": "1"}),
        ({}, {"public_bos": 0, "bos_url": BUCKET}),
        ({"public_bos": 0, "bos_url": BUCKET}, {"bos_url": "b.bj.bcebos.com"}),
    ],
    ids=["from a bucket", "into a bucket", "from the directory above"],
)
def test_files_stay_in_the_storage_where_they_lie(
    server: FakeServer, client: Client, first: dict[str, Any], changes: dict[str, Any]
) -> None:
    server.routes["GET /api/v1/jobs/job-1/spec"] = [ok({"spec": asked(**first)})]
    with pytest.raises(Conflict) as caught:
        rerun(client, "job-1", changes)
    assert caught.value.code == "rerun_files_elsewhere"
    for lang in LANGUAGES:
        assert "job-1" in caught.value.text(lang) and "--files" in caught.value.text(lang)
    assert len(server.seen) == 1


@pytest.mark.parametrize("first", [{}, {"public_bos": 0, "bos_url": BUCKET}])
def test_an_empty_directory_name_is_no_leave_to_take_the_old_files(
    server: FakeServer, client: Client, first: dict[str, Any]
) -> None:
    """`--files=$DIR` of a variable that is not set."""
    server.routes["GET /api/v1/jobs/job-1/spec"] = [ok({"spec": asked(**first)})]
    with pytest.raises(Invalid) as caught:
        rerun(client, "job-1", {"files": ""})
    assert caught.value.code == "rerun_files_empty"
    assert server.seen == []


@pytest.mark.parametrize("name", ["files", "file", "watch_mode"])
def test_a_flag_of_one_call_cannot_be_taken_back(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        parameters(asked(), {"unset": [name]})
    assert caught.value.code == "rerun_unset_local"
    assert f"--unset={name}" in caught.value.text("en")
    assert parameters(asked(env={name: "x", "A": "1"}), {"unset": name})["env"] == {"A": "1"}


DIRTY = {"commit": "c", "branch": "main", "dirty": "1"}


@pytest.mark.parametrize(
    ("git", "told", "diff", "noted"),
    [
        (DIRTY, {"diff": "-a\n+b\n"}, "-a\n+b\n", []),
        (DIRTY, {}, None, []),
        (DIRTY, {"diff_missing": "the store is away"}, None, ["the store is away"]),
        (DIRTY | {"dirty": "0"}, None, None, []),
        ({}, None, None, []),
    ],
    ids=["kept", "none was kept", "the store is away", "of a clean commit", "no repository"],
)
def test_what_the_files_differed_in_goes_along(
    server: FakeServer,
    client: Client,
    git: dict[str, str],
    told: dict[str, str] | None,
    diff: str | None,
    noted: list[str],
) -> None:
    """Of a repository that was clean nobody asks."""
    first = "job-" + "0" * 32
    spec = asked(requirements="", git=git)
    server.routes[f"GET /api/v1/jobs/{first}/spec"] = [ok({"spec": spec})]
    if told is not None:
        server.routes[f"GET /api/v1/jobs/{first}"] = [
            ok({"job_id": first, "job_status": "failed", "git": git | told})
        ]
    server.routes["POST /api/v1/jobs"] = [
        ok({"job": {"job_id": "job-2", "job_status": "submitted"}, "notes": []})
    ]
    heard: list[object] = []
    rerun(client, first, {}, note=lambda code, **params: heard.append(params["reason"]))
    assert server.seen[-1].json.get("diff") == diff
    assert server.seen[-1].json["spec"].get("git", {}) == git
    assert heard == noted


def test_requirements_are_in_a_file_that_nobody_holds_open(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows would not open it again. Which files this process holds is what Linux tells."""
    found: list[tuple[str, str, bool]] = []

    def submit(_: Client, given: dict[str, Any], **__: object) -> dict[str, Any]:
        path = Path(given["requirements"])
        text = client_submit.requirements_of(given["requirements"])
        found.append((given["files"], text, _is_held(path)))
        found.append((str(path), "", path.exists()))
        return {"job": {}, "notes": []}

    monkeypatch.setattr(client_rerun, "submit", submit)
    server.routes["GET /api/v1/jobs/job-1/spec"] = [ok({"spec": asked()})]
    rerun(client, "job-1", {"files": "other"})
    assert found[0] == ("other", "numpy\n", False)
    assert found[1][2]
    assert not Path(found[1][0]).parent.exists()


def _is_held(path: Path) -> bool:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # another thread closed it meanwhile
            if descriptor.readlink() == path.resolve():
                return True
    return False


def test_values_that_differ() -> None:
    one, two = {"a": 1, "b": 2, "same": 0}, {"b": 3, "c": 4, "same": 0}
    assert client_diff.values(one, two) == [
        {"name": "a", "first": 1, "second": None},
        {"name": "b", "first": 2, "second": 3},
        {"name": "c", "first": None, "second": 4},
    ]


def test_files_that_differ() -> None:
    def row(path: str, sha256: str = "", executable: int = 0) -> list[Any]:
        return [path, "file", 1, sha256, executable, ""]

    one = [row("gone"), row("same"), row("mode"), row("text", "1")]
    two = [row("mode", executable=1), row("new"), row("same"), row("text", "2")]
    found = client_diff.files(one, two)
    assert [(each["path"], each["change"]) for each in found] == [
        ("gone", "removed"),
        ("mode", "changed"),
        ("new", "added"),
        ("text", "changed"),
    ]
    assert found[0]["second"] is None
    assert found[1]["second"]["executable"] is True


def test_files_in_a_bucket_are_compared_by_their_tags() -> None:
    def row(path: str, mark: str, size: int = 1) -> list[Any]:
        return [path, "file", size, mark, 0, ""]

    one = [row("same", "1"), row("text", "2"), row("longer", "3"), row("untold", "4")]
    two = [row("same", "5"), row("text", "6"), row("longer", "7", 2), row("untold", "8")]
    first = {"same": "a", "text": "b", "longer": "c", "untold": ""}
    found = client_diff.files(one, two, tags=[first, {**first, "text": "d"}])
    assert [each["path"] for each in found] == ["longer", "text", "untold"]
    assert {each[side]["sha256"] for each in found for side in ("first", "second")} == {None}
    assert "tag" not in found[0]["first"]
    (mixed,) = client_diff.files(one[:1], two[:1], tags=[first, None])
    assert (mixed["first"]["sha256"], mixed["second"]["sha256"]) == (None, "5")
