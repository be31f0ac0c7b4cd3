"""People for the tests of the command line; everything that they start is ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.person import Person


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """One person for a whole module: their server starts once."""
    top = tmp_path_factory.mktemp("shared")
    person = Person(home=top / "home", here=top / "here")
    person.here.mkdir()
    yield person
    person.leaves()


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Callable[[str], Person]]:
    """Makes people with an empty home of the given name."""
    people: list[Person] = []

    def make(home: str = "home") -> Person:
        person = Person(home=tmp_path / home, here=tmp_path / "here")
        person.here.mkdir(exist_ok=True)
        people.append(person)
        return person

    yield make
    for person in people:
        person.leaves()
