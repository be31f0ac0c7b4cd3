"""A person with PaddlePaddle in their Python and an embedded server; what they start is ended.

PaddlePaddle is installed by `scripts/paddle.py` where it is missing. Where that cannot be, the
tests are skipped with the line that says why.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.person import Person
from tests.paddle.researcher import TOP, Researcher


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.paddle)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def modern() -> Path:
    """The directory of a Python that has PaddlePaddle 3.3."""
    return _programs("3.3")


@pytest.fixture(scope="session")
def older() -> Path:
    """The directory of a Python whose PaddlePaddle 2.6 still has a parameter server."""
    return _programs("2.6")


@pytest.fixture(scope="module")
def researcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    top = tmp_path_factory.mktemp("researcher")
    person = Person(home=top / "home", here=top / "here")
    person.here.mkdir()
    yield Researcher(person=person)
    person.leaves()


def _programs(version: str) -> Path:
    # pip keeps its settings and its cache in the home of whoever runs the tests.
    home = pwd.getpwuid(os.getuid()).pw_dir
    done = subprocess.run(
        [sys.executable, TOP / "scripts" / "paddle.py", version],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": home},
        timeout=580,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()).parent
