"""The parameters of submit_job: every one missing, malformed, out of range, contradictory."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.messages.tables import TEXTS
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs import param_checks, params
from paddlecloud.model.jobs.param_checks import check_env
from paddlecloud.model.jobs.params import PARAMETERS, check_wire, directory_of, parse_parameters
from tests.unit.model.builders import SNAPSHOT

PLAIN = {"start_cmd": "sh run.sh", "files": "./job"}
PRIVATE = {"start_cmd": "x", "public_bos": 0, "bos_url": "b-1.bj.bcebos.com/your/dir"}


def test_two_parameters_are_enough() -> None:
    assert parse_parameters(PLAIN) == {
        "job_name": "tmp_job",
        "start_cmd": "sh run.sh",
        "cluster": "default",
        "public_bcc": 1,
        "public_bos": 1,
        "job_type": None,
        "instance_count": 1,
        "wall_time": None,
        "bos_url": "",
        "cpu": None,
        "memory": None,
        "gpu": None,
        "distribute_job_type": None,
        "pservers": None,
        "pserver_cpu": None,
        "pserver_memory": None,
        "secret": {},
        "require": "",
        "env": {},
        "requirements": "",
        "description": "",
        "max_retries": 0,
        "retry_exit_codes": None,
        "hang_timeout": None,
        "min_instance": None,
        "max_instance": None,
        "priority": 0,
        "snapshot": None,
        "directory": "job",
        "inherited_env": {},
    }


@pytest.mark.parametrize(
    ("given_", "name", "want"),
    [
        ({"job_name": "训练 1"}, "job_name", "训练 1"),
        ({"public_bcc": "0"}, "public_bcc", 0),
        ({"public_bcc": False}, "public_bcc", 0),
        ({"public_bcc": 1}, "public_bcc", 1),
        ({"job_type": "GPU"}, "job_type", "gpu"),
        ({"instance_count": "1024"}, "instance_count", 1024),
        ({"wall_time": "48:00:01"}, "wall_time", 172_801),
        ({"wall_time": 90}, "wall_time", 90),
        ({"cpu": "0.25"}, "cpu", 0.25),
        ({"cpu": 4}, "cpu", 4.0),
        ({"memory": "512Mi"}, "memory", 512 * 2**20),
        ({"memory": 2**30}, "memory", 2**30),
        ({"gpu": "0"}, "gpu", 0),
        ({"env": "A=1"}, "env", {"A": "1"}),
        ({"env": ["A=1", "B=x=y", "A=2", "_c="]}, "env", {"A": "2", "B": "x=y", "_c": ""}),
        ({"env": {"A": 1, "B": "z"}}, "env", {"A": "1", "B": "z"}),
        ({"env": ("PADDLE_PG_TIMEOUT=5",)}, "env", {"PADDLE_PG_TIMEOUT": "5"}),
        ({"distribute_job_type": "nccl2", "instance_count": 2}, "distribute_job_type", "NCCL2"),
        (
            {"requirements": "six==1.16.0\r\n-e git+https://h/r\n"},
            "requirements",
            "six==1.16.0\n-e git+https://h/r\n",
        ),
        (
            {"requirements": "--find-links /srv/wheels\n"},
            "requirements",
            "--find-links /srv/wheels\n",
        ),
        ({"max_retries": "3"}, "max_retries", 3),
        ({"max_retries": 1, "retry_exit_codes": "7, 101,7"}, "retry_exit_codes", "7,101"),
        ({"max_retries": 1, "retry_exit_codes": [139, 7]}, "retry_exit_codes", "7,139"),
        ({"max_retries": 1, "retry_exit_codes": "any"}, "retry_exit_codes", "any"),
        ({"max_retries": 1, "retry_exit_codes": ""}, "retry_exit_codes", ""),
        ({"hang_timeout": "00:10:00"}, "hang_timeout", 600),
        ({"priority": "-5"}, "priority", -5),
        ({"priority": "high"}, "priority", 100),
        ({"priority": "Urgent"}, "priority", 200),
        ({"files": "/a/b/c/"}, "directory", "c"),
        ({"files": "C:\\data\\job"}, "directory", "job"),
        ({"files": "."}, "directory", ""),
        ({"cpu": None}, "cpu", None),
    ],
)
def test_good_values_become_typed_ones(given_: dict[str, object], name: str, want: object) -> None:
    assert parse_parameters({**PLAIN, **given_})[name] == want


def test_private_storage_needs_no_files() -> None:
    wire = parse_parameters({**PRIVATE, "bos_url": "b-1.bj.bcebos.com/your/dir/"})
    assert wire["bos_url"] == "b-1.bj.bcebos.com/your/dir"
    wire = parse_parameters({**PRIVATE, "bos_url": "https://b-1.us-east-1.bcebos.com/"})
    assert wire["bos_url"] == "b-1.us-east-1.bcebos.com"


BAD: list[tuple[str, dict[str, object], str]] = [
    ("no start_cmd", {"start_cmd": None}, "param_missing"),
    ("an empty start_cmd", {"start_cmd": "  "}, "param_missing"),
    ("a huge start_cmd", {"start_cmd": "x" * 65537}, "param_long"),
    ("a NUL in start_cmd", {"start_cmd": "a\0b"}, "param_nul"),
    ("a start_cmd that is not UTF-8", {"start_cmd": "a\udc80"}, "param_utf8"),
    ("a list as start_cmd", {"start_cmd": ["a", "b"]}, "param_type"),
    ("no files", {"files": None}, "files_needed"),
    ("empty files", {"files": ""}, "files_needed"),
    ("files and file that differ", {"file": "./other"}, "param_twice"),
    ("an unknown parameter with a neighbour", {"wal_time": "1"}, "param_unknown_near"),
    ("an unknown parameter with dashes", {"job-name": "x"}, "param_unknown_near"),
    ("an unknown parameter", {"zzz": "1"}, "param_unknown"),
    ("an empty job_name", {"job_name": ""}, "param_name_length"),
    ("a blank job_name", {"job_name": "   "}, "param_name_length"),
    ("a long job_name", {"job_name": "x" * 129}, "param_name_length"),
    ("a slash in job_name", {"job_name": "a/b"}, "param_name_letters"),
    ("a newline in job_name", {"job_name": "a\nb"}, "param_name_letters"),
    ("a job_name that is not UTF-8", {"job_name": "\udcff"}, "param_utf8"),
    ("an empty cluster", {"cluster": ""}, "param_name_length"),
    ("public_bcc=2", {"public_bcc": "2"}, "param_choice"),
    ("public_bcc=yes", {"public_bcc": "yes"}, "param_choice"),
    ("public_bcc=True as text", {"public_bcc": "True"}, "param_choice"),
    ("public_bos=-1", {"public_bos": -1}, "param_choice"),
    ("watch_mode=x", {"watch_mode": "x"}, "param_choice"),
    ("job_type=tpu", {"job_type": "tpu"}, "param_choice"),
    ("instance_count=0", {"instance_count": "0"}, "param_range"),
    ("instance_count=1025", {"instance_count": 1025}, "param_range"),
    ("instance_count=two", {"instance_count": "two"}, "param_integer"),
    ("instance_count=1.5", {"instance_count": 1.5}, "param_integer"),
    ("instance_count=True", {"instance_count": True}, "param_integer"),
    ("instance_count=1_0", {"instance_count": "1_0"}, "param_integer"),
    ("an instance_count of 5,000 digits", {"instance_count": "9" * 5000}, "param_range"),
    ("wall_time=30", {"wall_time": "30"}, "wall_time_format"),
    ("wall_time=00:61:00", {"wall_time": "00:61:00"}, "wall_time_format"),
    ("wall_time of nothing", {"wall_time": "00:00:00"}, "wall_time_range"),
    ("wall_time of two years", {"wall_time": "17520:00:00"}, "wall_time_range"),
    ("a negative wall_time", {"wall_time": -1}, "wall_time_range"),
    ("cpu=0", {"cpu": "0"}, "param_range"),
    ("cpu=-1", {"cpu": -1}, "param_range"),
    ("cpu=2000", {"cpu": "2000"}, "param_range"),
    ("cpu=inf", {"cpu": "inf"}, "param_range"),
    ("cpu=nan", {"cpu": "nan"}, "param_number"),
    ("cpu=many", {"cpu": "many"}, "param_number"),
    ("cpu=True", {"cpu": True}, "param_number"),
    ("cpu=0.333", {"cpu": "0.333"}, "param_step"),
    ("memory=much", {"memory": "much"}, "memory_format"),
    ("memory=4 without unit", {"memory": "4"}, "memory_range"),
    ("memory=1000T", {"memory": "1000T"}, "memory_range"),
    ("memory=True", {"memory": True}, "param_type"),
    ("gpu=-1", {"gpu": "-1"}, "param_range"),
    ("gpu=65", {"gpu": 65}, "param_range"),
    ("gpu=0.5", {"gpu": "0.5"}, "param_integer"),
    ("GPUs in a cpu job", {"gpu": 1, "job_type": "cpu"}, "gpu_in_cpu_job"),
    ("a gpu job without GPUs", {"gpu": 0, "job_type": "gpu"}, "gpu_job_without_gpu"),
    ("a mode for one instance", {"distribute_job_type": "NCCL2"}, "distribute_alone"),
    ("an unknown mode", {"distribute_job_type": "MPI"}, "param_choice"),
    ("env without =", {"env": "A"}, "env_format"),
    ("env with an empty name", {"env": "=1"}, "env_name"),
    ("env that begins with a digit", {"env": "1A=1"}, "env_name"),
    ("env with a dash", {"env": "A-B=1"}, "env_name"),
    ("env with a Chinese name", {"env": "变量=1"}, "env_name"),
    ("env that the platform sets", {"env": "PADDLE_TRAINER_ID=1"}, "env_reserved"),
    ("env with our prefix", {"env": {"PADDLECLOUD_X": "1"}}, "env_reserved"),
    ("env with a prefix of 2017", {"env": "PADDLE_INIT_PORT=1"}, "env_reserved"),
    ("env that confuses the launcher", {"env": "PADDLE_TRAINER_NUM=2"}, "env_reserved"),
    ("env with a NUL", {"env": {"A": "a\0"}}, "param_nul"),
    ("env that is not UTF-8", {"env": {"A": "\udc80"}}, "param_utf8"),
    ("a huge env", {"env": {"A": "x" * 100_000}}, "env_value_long"),
    ("too much env", {"env": {f"A{n}": "x" * 90_000 for n in range(3)}}, "env_size"),
    ("env of a wrong kind", {"env": [["A"]]}, "param_type"),
    ("requirements that include others", {"requirements": "a\n -r more.txt"}, "requirements_local"),
    ("constraints of a file", {"requirements": "--constraint=c.txt"}, "requirements_local"),
    ("requirements of a folder", {"requirements": "./mine"}, "requirements_local"),
    ("an editable folder", {"requirements": "-e ."}, "requirements_local"),
    ("long requirements", {"requirements": "a\n" * 32_769}, "requirements_long"),
    ("a long description", {"description": "x" * 4097}, "param_long"),
    ("max_retries=101", {"max_retries": 101}, "param_range"),
    ("max_retries=-1", {"max_retries": "-1"}, "param_range"),
    ("retry_exit_codes=0", {"max_retries": 1, "retry_exit_codes": "0"}, "param_range"),
    ("retry_exit_codes=256", {"max_retries": 1, "retry_exit_codes": "1,256"}, "param_range"),
    ("retry_exit_codes=all", {"max_retries": 1, "retry_exit_codes": "all"}, "retry_codes_format"),
    ("any and more", {"max_retries": 1, "retry_exit_codes": "any,7"}, "retry_codes_format"),
    ("codes without retries", {"retry_exit_codes": "7"}, "retry_codes_unused"),
    ("hang_timeout=10m", {"hang_timeout": "10m"}, "wall_time_format"),
    ("hang_timeout of nothing", {"hang_timeout": "00:00:00"}, "wall_time_range"),
    ("priority=201", {"priority": 201}, "priority_format"),
    ("priority=hihg", {"priority": "hihg"}, "priority_format"),
    ("private storage without bos_url", {"public_bos": 0}, "bos_url_needed"),
    ("bos_url with public storage", {"bos_url": "b.bj.bcebos.com/d"}, "bos_url_unused"),
]


@pytest.mark.parametrize(("change", "want"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_wrong_call_is_told_in_one_sentence(change: dict[str, object], want: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_parameters({**PLAIN, **change})
    assert caught.value.code == want
    assert caught.value.exit_code == 2
    for lang in ("en", "zh"):
        sentence = caught.value.text(lang)
        assert sentence.isprintable()
        assert len(sentence) < 300
        assert not sentence.endswith("})"), "a value of the sentence is missing"


@pytest.mark.parametrize(
    ("bos_url", "hint"),
    [
        ("http://b.bj.bcebos.com/d", "remove http://"),
        ("ftp://b.bj.bcebos.com/d", "remove ftp://"),
        ("b.bj.bcebos.com:8443/d", "remove the port :8443"),
        ("b.bcebos.com/d", '"b.bcebos.com" is not a bucket'),
        ("b.bj.amazonaws.com/d", '"b.bj.amazonaws.com" is not a bucket'),
        ("user@b.bj.bcebos.com/d", '"user@b" must be 1 to 63 lower-case letters'),
        ("-b.bj.bcebos.com/d", '"-b" must be 1 to 63 lower-case letters'),
        ("B.bj.bcebos.com/d", '"B" must be 1 to 63 lower-case letters'),
        (".bj.bcebos.com/d", '"" must be 1 to 63 lower-case letters'),
        ("b.bj.bcebos.com/../d", '".." is not a valid directory name'),
        ("b.bj.bcebos.com/a/./d", '"." is not a valid directory name'),
        ("b.bj.bcebos.com/.tmp/d", '".tmp" is not a valid directory name'),
        ("b.bj.bcebos.com//d", "two slashes in a row"),
        ("b.bj.bcebos.com/a//d", "two slashes in a row"),
        ("b.bj.bcebos.com/a//", "two slashes in a row"),
        ("b.bj.bcebos.com/d?x=1", "remove ? and what follows"),
        ("b.bj.bcebos.com?x=1", "remove ? and what follows"),
        ("b.bj.bcebos.com/d#frag", "remove # and what follows"),
        ("b.bj.bcebos.com/a\nb", "a line break"),
        ("b.bj.bcebos.com/" + "x" * 256, "a name may have 255 bytes"),
        ("just/a/dir", '"just" is not a bucket'),
    ],
)
def test_what_is_wrong_with_a_bos_url_is_said(bos_url: str, hint: str) -> None:
    with pytest.raises(Invalid, match=r"{bucket}\.{region}\.bcebos\.com") as caught:
        parse_parameters({**PRIVATE, "bos_url": bos_url})
    assert caught.value.code == "bos_url_format"
    assert hint in str(caught.value)
    assert "{" not in caught.value.text("zh").replace("{bucket}.{region}", "")


def test_file_is_another_word_for_files() -> None:
    assert parse_parameters({"start_cmd": "x", "file": "./job"})["directory"] == "job"
    assert directory_of({"file": pathlib.PurePath("job"), "watch_mode": "1"}) == "job"
    assert directory_of({"start_cmd": "x"}) is None


def test_the_suggestion_is_the_nearest_name() -> None:
    with pytest.raises(Invalid) as caught:
        parse_parameters({**PLAIN, "instance-cont": 1})
    assert caught.value.params["near"] == "instance_count"


def test_each_parameter_has_its_help_in_both_languages() -> None:
    assert len({parameter.name for parameter in PARAMETERS}) == len(PARAMETERS)
    for parameter in PARAMETERS:
        assert all(TEXTS[parameter.help])
    assert [p.name for p in PARAMETERS if p.required] == ["start_cmd"]
    assert [p.name for p in PARAMETERS if p.repeatable] == ["env", "secret"]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("wandb", {"wandb": ""}),
        (["wandb", "a.key=KEY"], {"wandb": "", "a.key": "KEY"}),
        ({"wandb": None, "x": "X"}, {"wandb": "", "x": "X"}),
        ([], {}),
    ],
)
def test_secrets_are_named_as_a_list_or_a_table(given: object, want: dict[str, str]) -> None:
    spec = parse_parameters({**PLAIN, "secret": given})
    assert spec["secret"] == want
    assert check_wire({**spec, "snapshot": SNAPSHOT})["secret"] == want


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("a/b", "secret_name"),
        ("..", "secret_name"),
        ("", "secret_name"),
        ("é", "secret_name"),
        ("x" * 65, "secret_name"),
        (["a", "a=B"], "secret_twice"),
        (["a=X", "b=X"], "secret_variable_twice"),
        ("a=", "env_name"),
        ("a=1X", "env_name"),
        ("a=JOB_ID", "env_reserved"),
        ("a=EPOCHS", "secret_variable_given"),
        ([f"s{number}" for number in range(33)], "secrets_of_job"),
        (3.5j, "param_type"),
    ],
)
def test_a_wrong_secret_is_refused(given: object, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_parameters({**PLAIN, "env": {"EPOCHS": "1"}, "secret": given})
    assert caught.value.code == code


def test_the_documented_parameters_have_the_documented_order_and_defaults() -> None:
    documented = [
        ("job_name", "tmp_job"),
        ("start_cmd", None),
        ("cluster", "default"),
        ("public_bcc", 1),
        ("public_bos", 1),
        ("job_type", None),
        ("instance_count", 1),
        ("wall_time", None),
        ("bos_url", ""),
        ("files", None),
        ("watch_mode", 0),
    ]
    names = dict(documented)
    assert [(p.name, p.default) for p in PARAMETERS if p.name in names] == documented


def test_what_a_shell_passes_on_is_never_refused() -> None:
    inherited = dict.fromkeys(param_checks.INHERITED_NAMES, "x")
    wire = {**parse_parameters(PLAIN), "snapshot": SNAPSHOT, "inherited_env": inherited}
    assert check_wire(wire)["inherited_env"] == inherited
    with pytest.raises(Invalid, match="PADDLECLOUD_HOME"):
        check_env({"PADDLECLOUD_HOME": "elsewhere"})
    with pytest.raises(Invalid, match="PADDLECLOUD_AK"):
        check_wire({**wire, "inherited_env": {"PADDLECLOUD_AK": "x"}})


WIRE = {**parse_parameters(PLAIN), "snapshot": SNAPSHOT}


def test_the_server_accepts_what_the_client_made() -> None:
    assert check_wire(WIRE) == WIRE
    assert check_wire({"start_cmd": "sh run.sh", "snapshot": SNAPSHOT, "directory": "job"}) == WIRE


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"snapshot": None}, "files_needed"),
        ({"snapshot": "sha256:" + "A" * 64}, "snapshot_id_format"),
        ({"snapshot": "a" * 64}, "snapshot_id_format"),
        ({"files": "x"}, "param_unknown"),
        ({"start_cmd": ""}, "param_missing"),
        ({"cpu": -1}, "param_range"),
        ({"env": {"JOB_ID": "1"}}, "env_reserved"),
        ({"inherited_env": {"PADDLE_TRAINER_ID": "1"}}, "env_reserved"),
        ({"directory": "../x"}, "param_name_letters"),
        ({"directory": ["x"]}, "param_type"),
        ({"gpu": 2, "job_type": "cpu"}, "gpu_in_cpu_job"),
        ({"wall_time": 0}, "wall_time_range"),
        ({"wall_time": True}, "param_type"),
        ({"state": "success"}, "param_unknown"),
    ],
)
def test_a_hand_made_request_passes_no_further(change: dict[str, object], want: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_wire({**WIRE, **change})
    assert caught.value.code == want


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([p.name for p in PARAMETERS]), _anything))
def test_whatever_comes_in_the_answer_is_a_wire_spec_or_invalid(raw: dict[str, object]) -> None:
    try:
        wire = parse_parameters({**PLAIN, **raw})
    except Invalid as error:
        assert error.code in TEXTS
        return
    snapshot = SNAPSHOT if wire["public_bos"] else None
    assert check_wire({**wire, "snapshot": snapshot}) == {**wire, "snapshot": snapshot}


def test_the_module_starts_fast() -> None:
    """It is on the way of submit_job: none of the slow modules may come with it."""
    program = "import sys, paddlecloud.model.jobs.params; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": str(pathlib.Path(params.__file__).parents[3])},
    )
    loaded = set(run.stdout.split())
    assert "paddlecloud.model.jobs.params" in loaded
    assert not loaded & {"dataclasses", "typing", "re", "difflib", "json", "enum", "datetime"}
