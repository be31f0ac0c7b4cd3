"""The reference says what the code says: generated pages, tables of names, the layout on disk."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.replica import _secret_files, _token_file
from paddlecloud.client.config.resolve import resolve
from paddlecloud.model.jobs.environment import environment, with_paths, with_root
from paddlecloud.model.jobs.job import Role
from paddlecloud.model.jobs.param_checks import INHERITED_NAMES, RESERVED_NAMES, RESERVED_PREFIXES
from paddlecloud.model.jobs.states import FINAL, TRANSITIONS, JobState
from scripts import gen_reference
from tests.docs.pages import DOCS, Session
from tests.live_files import files_below
from tests.unit.model.builders import a_job, a_replica, a_spec, an_attempt

REFERENCE = DOCS / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The rows of every table of a page, without headers."""
    found: list[list[str]] = []
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("| ") and not line.startswith("| ---"):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        if line.startswith("| ---") and before.startswith("| "):
            found.pop()
    return found


def names(cells: list[str]) -> set[str]:
    """Everything between backticks."""
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_generated_pages_are_up_to_date() -> None:
    for path, text in gen_reference.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"run `make docs` for {path.name}"


def test_a_page_that_would_change_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {REFERENCE / "commands.md": "something else\n"}
    monkeypatch.setattr(gen_reference, "pages", lambda: pages)
    assert gen_reference.main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/reference/commands.md is out of date\n"


def told_variables() -> set[str]:
    return names([row[0] for row in rows(page("environment.md"))])


def gangs() -> Iterator[dict[str, str]]:
    """The environment of one worker of each kind of job."""
    trainer, pserver = a_replica(rank=1, port=62001), a_replica(role=Role.PSERVER, port=62000)
    for replicas, spec in (
        ([a_replica()], a_spec()),
        ([a_replica(port=62000), trainer], a_spec(trainers=2)),
        ([pserver, a_replica(), trainer], a_spec(trainers=2, pservers=1)),
        ([a_replica(cards=(0,))], a_spec()),
    ):
        job = a_job(spec=spec)
        env = environment(job, an_attempt(*replicas), replicas[-1], inherit=True)
        paths = {"work": "w", "output": "o", "log": "l", "mount": "m", "temporary": "t"}
        yield with_root(with_paths(env, **paths, home="h"), "r")


def test_the_table_of_variables_is_complete() -> None:
    given = {name for env in gangs() for name in env}
    given |= {_token_file.VARIABLE, _secret_files.VARIABLE}
    assert told_variables() == given | set(INHERITED_NAMES)


def test_every_reserved_name_is_in_the_table_or_left_out_on_purpose() -> None:
    text = page("environment.md")
    assert [name for name in sorted(RESERVED_NAMES) if f"`{name}`" not in text] == []
    ours = {name for name in told_variables() if name.startswith(RESERVED_PREFIXES)}
    assert len(ours) > 10


def test_the_table_of_states_is_that_of_the_model() -> None:
    told = rows(page("states.md"))
    states = {row[0].strip("`"): row[2] == "yes" for row in told if len(row) == 3}
    assert states == {state.value: state in FINAL for state in JobState}
    arrows = {(r[0].strip("`"), r[1], r[2].strip("`")) for r in told if len(r) == 4 and r[3]}
    want = {(s.value, event.value, after.value) for (s, event), after in TRANSITIONS.items()}
    assert arrows == want


def test_the_table_of_the_configuration_is_complete() -> None:
    told = rows(page("client-conf.md"))
    want = {name for name, _, _ in resolve({}, {"HOME": "/home/ann"}).rows()}
    assert names([row[0] for row in told]) == want
    variables = names([row[1] for row in told])
    values = {"HOST": "h", "PORT": "1", "AK": "a", "SK": "s", "HOME": "/h", "LANG": "zh"}
    values |= {"CA_FILE": "c", "BOS_AK": "a", "BOS_SK": "s", "BOS_SESSION_TOKEN": "t"}
    environ = {f"PADDLECLOUD_{name}": value for name, value in values.items()}
    origins = {origin for _, _, origin in resolve({}, {"HOME": "/home/ann", **environ}).rows()}
    assert variables - {"PADDLECLOUD_DEBUG"} == {o for o in origins if o.startswith("PADDLECLOUD_")}


def layout() -> re.Pattern[str]:
    """One pattern of every path that the page names: <x> is a name, … is anything below."""
    patterns = []
    for row in rows(page("files-on-disk.md")):
        escaped = re.escape(row[0].strip("`"))
        patterns.append(re.sub(r"<[^>]*>", r"[^/]+", escaped).replace("…", ".+"))
    return re.compile("|".join(patterns))


def test_the_layout_on_disk_is_the_one_told(tmp_path: Path) -> None:
    session = Session(tmp_path)
    submit = "paddlecloud submit_job --files=examples/hello_train/job --job_type=cpu"
    try:
        code, output = session.run(f"{submit} --start_cmd=true --watch_mode=1")
        assert code == 0, output
        code, output = session.run(f"{submit} --start_cmd='echo x > $OUTPUT_PATH/x; sleep 1000'")
        assert code == 0, output
        home = session.home / ".paddlecloud"
        deadline = time.monotonic() + 30
        while not list(home.glob("agent/replicas/*/output/x")):
            assert time.monotonic() < deadline, "the job does not begin"
            time.sleep(0.05)
        found = [path.relative_to(home).as_posix() for path in files_below(home) if _stays(path)]
        assert "server/paddlecloud.db" in found
        assert [path for path in found if not layout().fullmatch(path)] == []
    finally:
        session.end()


def _stays(path: Path) -> bool:
    """Records appear under a passing name first."""
    return not path.name.endswith((".tmp", ".new", ".part"))


@pytest.mark.parametrize("path", ["server/other", "store/users/a/b", "agent/replicas/r/other"])
def test_a_planted_path_is_found(path: str) -> None:
    assert layout().fullmatch(path) is None
