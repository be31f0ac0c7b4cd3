"""Following a job that is tried again: every attempt's log, whole and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.person import Person


def tried_twice(shared: Person, marker: Path) -> tuple[str, ...]:
    """The words of a job that fails the first time and succeeds the second."""
    source = shared.here / "empty"
    source.mkdir(exist_ok=True)
    script = f"seq 1 2000; [ -e {marker} ] || {{ touch {marker}; exit 101; }}; echo well"
    return ("submit_job", f"--files={source}", f"--start_cmd={script}", "--max_retries=1")


COUNT = "".join(f"{number}\n" for number in range(1, 2001))


@pytest.mark.slow
def test_watching_shows_every_attempt(shared: Person, tmp_path: Path) -> None:
    done = shared.types(*tried_twice(shared, tmp_path / "tried"), "--watch_mode=1")
    assert done.code == 0, done.err
    job_id = done.out.splitlines()[0].removeprefix("job_id: ")
    assert done.out == f"job_id: {job_id}\n{COUNT}{COUNT}well\n"


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("-f",), f"{COUNT}well\n"),
        (("-f", "-n", "2"), "2000\nwell\n"),
        (("-f", "--attempt=1"), COUNT),
        (("--attempt=1", "-n1"), "2000\n"),
    ],
    ids=["follow", "its end", "the first", "the end of the first"],
)
def test_after_the_end_the_newest_attempt_is_shown(
    shared: Person, tmp_path: Path, words: tuple[str, ...], want: str
) -> None:
    submitted = shared.types(*tried_twice(shared, tmp_path / "tried"))
    job_id = submitted.out.removeprefix("job_id: ").strip()
    assert shared.waits_for(job_id)["job_status"] == "success"
    assert shared.types("logs", job_id, *words).out == want
