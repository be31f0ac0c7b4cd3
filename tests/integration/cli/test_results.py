"""Results of real jobs: verified downloads that go on, jobs run again, jobs compared."""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path

import pytest

from paddlecloud.client.download._journal import read_journal
from paddlecloud.client.download._ranges import FEW, range_size
from paddlecloud.client.download.staging import staging_dir
from tests.integration.cli.person import Person, until

MODEL = bytes(range(256)) * 80_000
SCRIPT = 'cat data/part > "$OUTPUT_PATH/model"; echo "$GREETING $1 $(wc -c < data/part)"\n'


@pytest.fixture(scope="module")
def person(shared: Person) -> Person:
    shared.home.mkdir()
    (shared.home / "server.toml").write_text("[running]\ngrace = 0.5\nship_interval = 0.1\n")
    job = shared.here / "job"
    (job / "data").mkdir(parents=True)
    (job / "data" / "part").write_bytes(MODEL)
    (job / "run.sh").write_text(SCRIPT)
    return shared


@pytest.fixture(scope="module")
def first(person: Person) -> str:
    """A job of 20 MB, over."""
    words = ("--start_cmd=sh run.sh one", "--env", "GREETING=hello", "--env", "OTHER=1")
    done = person.types("submit_job", "--files=job", "--job_name=a", "--cpu=1", *words)
    assert done.code == 0, done.err
    job_id = done.out.removeprefix("job_id: ").strip()
    assert person.waits_for(job_id)["job_status"] == "success"
    return job_id


def model(job_id: str) -> str:
    return f"output/{job_id}/rank-0/model"


def test_the_command_that_a_job_ends_with_works_job_after_job(
    person: Person, first: str, tmp_path: Path
) -> None:
    """Copied from the last line on stderr, in one directory."""
    del first  # the server runs
    (tmp_path / "job").mkdir()
    at = Person(home=person.home, here=tmp_path)
    words = ("--files=job", "--watch_mode=1", "--start_cmd=echo $JOB_ID > $OUTPUT_PATH/id")
    jobs = []
    for number in range(2):
        done = at.types("submit_job", *words, f"--job_name=hint-{number}")
        hint = done.err.splitlines()[-1]
        assert hint.startswith("results: paddlecloud ")
        fetched = at.types(*shlex.split(hint)[2:])
        assert fetched.code == 0, fetched.err
        jobs.append(done.out.removeprefix("job_id: ").strip())
    for job_id in jobs:
        assert (tmp_path / "output" / job_id / "rank-0" / "id").read_text().strip() == job_id
    # So do all the ways to name a job.
    for name in ("last", "hint-1", jobs[1][:20], jobs[1][4:24]):
        assert at.types("query_job", name, "--json").json["job_id"] == jobs[1]
    assert at.types("logs", "hint-0", "--json").json["job_id"] == jobs[0]
    assert at.types("diff", "hint-0", "last", "--json").json["jobs"] == jobs


def test_a_listing_knows_the_digests_of_what_was_put_out(person: Person, first: str) -> None:
    rows = person.types("get_files", first, "--prefix=/", "--json").json["files"]
    known = {row["path"]: row["sha256"] for row in rows}
    digest = hashlib.sha256(MODEL).hexdigest()
    assert known[model(first)] == known["data/part"] == digest
    assert known[f"output/{first}/"] is None
    assert [*known] == sorted(known)


def test_a_download_that_was_killed_goes_on(person: Person, first: str, tmp_path: Path) -> None:
    there = tmp_path / "result"
    words = ("get_files", first, "--download=1", f"--download_dir={there}")
    with person.starts(*words) as process:
        until(lambda: _journal(there) > 0 or process.poll() is not None)
        process.kill()
        process.wait()
    kept = _journal(there)
    done = person.types(*words, "--resume", PADDLECLOUD_DEBUG="1")
    assert done.code == 0, done.err
    asked = done.err.count(model(first))
    size = range_size([{"size": len(MODEL)}], FEW)
    assert asked + kept <= 2 + len(range(0, len(MODEL), size))
    assert (there / first / "rank-0" / "model").read_bytes() == MODEL
    assert not Path(staging_dir(str(there))).exists()


def _journal(there: Path) -> int:
    """How many ranges are there."""
    _, states = read_journal(f"{staging_dir(str(there))}/journal")
    return sum(len(state.ranges) for state in states.values())


def test_a_download_of_a_running_job_gets_the_rest_later(person: Person, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job_id = person.submits(
        f"echo one > $OUTPUT_PATH/a; until test -e {gate}; do sleep 0.02; done;"
        " echo two > $OUTPUT_PATH/b"
    )
    until(lambda: "rank-0/a\t4" in person.types("get_files", job_id).out)
    words = ("get_files", job_id, "--download=1", f"--download_dir={tmp_path}/result")
    early = person.types(*words)
    assert (early.code, f"{job_id} has not ended (running)" in early.err) == (0, True)
    gate.touch()
    person.waits_for(job_id)
    again = person.types(*words)
    assert (again.code, "--resume" in again.err) == (2, True)
    late = person.types(*words, "--resume")
    assert (late.code, "has not ended" in late.err) == (0, False)
    found = tmp_path / "result" / job_id / "rank-0"
    assert [(found / name).read_text() for name in "ab"] == ["one\n", "two\n"]


def test_a_download_tells_of_outputs_that_never_came(person: Person, tmp_path: Path) -> None:
    job_id = person.submits(r"echo 1 > $OUTPUT_PATH/fine; echo 2 > $OUTPUT_PATH/'a\b'")
    assert person.waits_for(job_id)["job_status"] == "success"
    words = ("get_files", job_id, "--download=1")
    done = person.types(*words, f"--download_dir={tmp_path}/one")
    assert (done.code, done.err.count("these outputs were not sent: rank-0/a\\b")) == (0, 1)
    told = person.types(*words, f"--download_dir={tmp_path}/two", "--json").json
    assert "they are kept for" in told["left_behind"]
    listed = [row["path"].rpartition("/")[2] for row in told["files"]]
    assert listed == ["", "trainer-0.log", "fine"]


def test_an_empty_prefix_is_none_and_a_download_of_nothing_tells_the_same(
    person: Person, first: str, tmp_path: Path
) -> None:
    whole = person.types("get_files", first).out
    assert person.types("get_files", first, "--prefix=").out == whole
    words = ("--prefix=nothing", "--download=1", f"--download_dir={tmp_path}/none", "--json")
    done = person.types("get_files", first, *words)
    assert done.code == 1
    assert done.json == {
        "job_id": first,
        "files": [],
        "job_status": "success",
        "download_dir": f"{tmp_path}/none",
        "bytes": 0,
        "kept": 0,
        "complaints": {},
        "left_behind": "",
    }
    assert not (tmp_path / "none").exists()


def test_a_command_beside_a_job_with_many_bytes_finds_its_files(
    person: Person, first: str, tmp_path: Path
) -> None:
    command = f"echo mine > made; until test -e {tmp_path}/gate; do sleep 0.02; done"
    job_id = person.types("rerun", first, f"--start_cmd={command}").out.split()[1]
    person.waits_for(job_id, "running")
    words = ("exec", job_id, "--", "sh", "-c")
    until(lambda: person.runs(*words, "cat made").out == "mine\n")
    assert person.runs(*words, "wc -c < data/part").out.strip() == str(len(MODEL))
    (tmp_path / "gate").touch()
    assert person.waits_for(job_id)["job_status"] == "success"


def test_a_job_is_run_again_with_other_flags(person: Person, first: str) -> None:
    done = person.types("rerun", first, "--start_cmd=sh run.sh two", "--env", "OTHER=2")
    assert done.code == 0, done.err
    assert done.out.startswith("job_id: job-")
    second = done.out.removeprefix("job_id: ").strip()
    assert person.waits_for(second)["job_status"] == "success"
    assert person.types("logs", second).out == f"hello two {len(MODEL)}\n"
    before, after = person.sees(first), person.sees(second)
    assert (after["snapshot"], after["job_name"]) == (before["snapshot"], "a")
    assert after["bos_url"] == before["bos_url"]
    assert after["env"] == {"GREETING": "hello", "OTHER": "2"}
    found = person.types("diff", first, second, "--json").json
    assert found["parameters"] == [
        {"name": "start_cmd", "first": "sh run.sh one", "second": "sh run.sh two"}
    ]
    assert found["env"] == [{"name": "OTHER", "first": "1", "second": "2"}]
    assert (found["files"], found["inherited_env"], found["same"]) == ([], [], False)
    shown = person.types("diff", first, second).out
    assert shown == "start_cmd: sh run.sh one -> sh run.sh two\nenv OTHER: 1 -> 2\n"


def test_a_job_is_run_again_with_other_files(person: Person, first: str) -> None:
    other = person.here / "other"
    (other / "data").mkdir(parents=True)
    (other / "data" / "part").write_bytes(b"less")
    (other / "run.sh").write_text(SCRIPT)
    (other / "new").touch()
    third = person.types("rerun", first, "--files=other", "--json").json["job_id"]
    person.waits_for(third)
    assert person.types("logs", third).out == "hello one 4\n"
    done = person.types("diff", first, third)
    assert [line for line in done.out.splitlines() if line[1] == " "] == [
        f"~ data/part ({len(MODEL)} -> 4 bytes)",
        "+ new (0 bytes)",
    ]


def test_a_job_that_is_like_another(person: Person, first: str) -> None:
    second = person.types("rerun", first).out.removeprefix("job_id: ").strip()
    done = person.types("diff", first, second)
    assert (done.code, done.out) == (0, "")
    assert "are the same in files" in done.err
    person.waits_for(second)


def test_jobs_that_cannot_be_compared_or_run_again(person: Person, first: str) -> None:
    unknown = "job-" + "0" * 32
    assert person.types("diff", first).code == 2
    assert person.types("diff", first, first, first).code == 2
    assert person.types("diff", first, unknown).code == 1
    assert person.types("rerun", unknown).code == 1
    wrong = person.types("rerun", first, "--cpu=none")
    assert wrong.code == 2
    assert "cpu" in wrong.err


def test_a_job_that_said_nothing_has_an_empty_log_to_download(
    person: Person, tmp_path: Path
) -> None:
    job_id = person.submits("exit 7")
    view = person.waits_for(job_id)
    assert "printed nothing" in view["failure"]["advice"]
    log = f"output/{job_id}/log/trainer-0.log"
    there = tmp_path / "log"
    words = (f"--prefix={log}", "--download=1", f"--download_dir={there}")
    assert person.types("get_files", job_id, *words).code == 0
    assert (there / job_id / "log" / "trainer-0.log").read_bytes() == b""


def test_links_and_empty_directories_are_listed(person: Person, tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "bin").mkdir(parents=True)
    (job / "bin/run.sh").touch()
    (job / "data/none").mkdir(parents=True)
    (job / "latest").symlink_to("bin/run.sh")
    done = person.types("submit_job", f"--files={job}", "--start_cmd=true")
    job_id = done.out.removeprefix("job_id: ").strip()
    person.waits_for(job_id)
    rows = [
        line.split("\t") for line in person.types("get_files", job_id, "--prefix=/").out.split("\n")
    ]
    paths = [row[0] for row in rows]
    assert paths == ["bin/run.sh", "data/none/", "latest", *paths[3:]]
    assert [row[1] for row in rows[:3]] == ["0"] * 3
    assert {row[2] for row in rows[:3]} == {rows[0][2]}
    assert [row[3:] for row in rows[:3]] == [[], [], ["-> bin/run.sh"]]
    only = person.types("get_files", job_id, "--prefix=latest", "--json").json["files"]
    assert only == [
        {"path": "latest", "size": 0, "time": rows[0][2], "sha256": None, "link": "bin/run.sh"}
    ]
    words = ("--prefix=/", "--download=1", f"--download_dir={tmp_path}/there")
    assert person.types("get_files", job_id, *words).code == 0
    assert (tmp_path / "there/latest").readlink() == Path("bin/run.sh")
    assert (tmp_path / "there/data/none").is_dir()


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_names_that_the_system_cannot_write_are_told(person: Person, tmp_path: Path) -> None:
    job_id = person.submits("echo one > $OUTPUT_PATH/\N{SNOWMAN}")
    person.waits_for(job_id)
    there = tmp_path / "result"
    words = ("get_files", job_id, "--download=1", f"--download_dir={there}")
    done = person.runs(*words, **ASCII)
    assert done.code == 2
    (told,) = done.err.splitlines()
    assert f"output/{job_id}/rank-0/?" in told
    assert "LC_ALL=C.UTF-8" in told
    assert list(tmp_path.iterdir()) == []
    assert person.runs(*words, LC_ALL="C.UTF-8").code == 0
    assert (there / job_id / "rank-0/\N{SNOWMAN}").read_text() == "one\n"


def test_a_link_that_leads_out_is_told_of_in_the_log(person: Person, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"elsewhere")
    job_id = person.submits(f'echo begun; ln -s {tmp_path}/model "$OUTPUT_PATH/model"')
    assert person.waits_for(job_id)["job_status"] == "success"
    lines = person.types("logs", job_id).out.splitlines()
    assert lines[0] == "begun"
    assert "point outside OUTPUT_PATH and LOCAL_LOG_PATH: rank-0/model; copy" in lines[1]
    assert len(lines) == 3
    assert model(job_id) not in person.types("get_files", job_id).out


def test_what_became_of_outputs_in_the_store_is_told(person: Person, tmp_path: Path) -> None:
    names = ("changed", "damaged", "restored", "sound")
    job_id = person.submits("; ".join(f"echo {name} > $OUTPUT_PATH/{name}" for name in names))
    assert person.waits_for(job_id)["job_status"] == "success"
    (store,) = person.home.glob(f"store/users/*/output/{job_id}/rank-0")
    for name, time_too in (("changed", True), ("damaged", False)):
        found = (store / name).stat()
        (store / name).write_text(f"{name[::-1]}\n")
        moved = found.st_mtime_ns + (10**10 if time_too else 0)
        os.utime(store / name, ns=(found.st_atime_ns, moved))
    os.utime(store / "restored", (1, 1))
    there = tmp_path / "result"
    words = ("get_files", job_id, "--download=1", f"--download_dir={there}")
    done = person.types(*words, "--json")
    assert done.code == 1
    told = done.json
    assert (told["download_dir"], told["job_status"]) == (str(there), "success")
    root = f"output/{job_id}/rank-0"
    assert told["complaints"] == {
        "download_damaged": [f"{root}/damaged"],
        "download_not_its_own": [f"{root}/changed"],
    }
    came = sum(path.stat().st_size for path in there.rglob("*") if path.is_file())
    assert (told["bytes"], told["kept"]) == (came, 0)
    damaged, changed = (line for line in done.err.splitlines() if "rank-0/" in line)
    assert f"were skipped: output/{job_id}/rank-0/damaged;" in damaged
    assert "not what the job wrote" in changed
    assert changed.count("rank-0/") == changed.count(f"output/{job_id}/rank-0/changed;") == 1
    assert {path.name for path in (there / job_id / "rank-0").iterdir()} == {*names} - {"damaged"}
