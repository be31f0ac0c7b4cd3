"""A database that goes from test to test carries nothing with it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.postgres import database_of, take_back_all

HELD = "select count(*) from counters"
PUT = "insert into counters (name, value) values ('a', 1)"


def test_the_next_test_gets_it_empty_and_under_another_name(tmp_path: Path) -> None:
    first = database_of(tmp_path)
    with psycopg.connect(first) as connection:
        connection.execute(PUT)
        number = _number_of(connection)
    take_back_all()
    second = database_of(tmp_path)
    with psycopg.connect(second) as connection:
        assert _number_of(connection) == number
        assert connection.execute(HELD).fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)


def test_who_is_still_connected_is_put_out(tmp_path: Path) -> None:
    with closing(psycopg.connect(database_of(tmp_path))) as straggler:
        straggler.execute(PUT)
        take_back_all()
        with pytest.raises(psycopg.OperationalError):
            straggler.commit()
    with psycopg.connect(database_of(tmp_path)) as connection:
        assert connection.execute(HELD).fetchone() == (0,)


@pytest.mark.parametrize(
    "change",
    [
        "alter table counters add column note text",
        "delete from schema_migrations where number = 1",
    ],
)
def test_one_whose_tables_were_changed_is_thrown_away(tmp_path: Path, change: str) -> None:
    with psycopg.connect(database_of(tmp_path)) as connection:
        connection.execute(change)
        number = _number_of(connection)
    take_back_all()
    with psycopg.connect(database_of(tmp_path)) as connection:
        assert _number_of(connection) != number


@pytest.mark.parametrize("step", ["_deserted", "_emptied"])
def test_one_that_somebody_comes_back_to_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with psycopg.connect(database_of(tmp_path)) as connection:
        number = _number_of(connection)

    def somebody_is_there(name: str) -> bool:
        raise psycopg.errors.ObjectInUse(name)

    with monkeypatch.context() as patch:
        patch.setattr(postgres, step, somebody_is_there)
        take_back_all()
    with psycopg.connect(database_of(tmp_path)) as connection:
        assert _number_of(connection) != number
        asked = "select count(*) from pg_database where oid = %s"
        assert number is not None
        assert connection.execute(asked, number).fetchone() == (0,)


def test_a_lost_connection_is_made_again(tmp_path: Path) -> None:
    postgres._administrator().close()
    with psycopg.connect(database_of(tmp_path)) as connection:
        assert connection.execute(HELD).fetchone() == (0,)


def _number_of(connection: psycopg.Connection) -> tuple[object, ...] | None:
    asked = "select oid from pg_database where datname = current_database()"
    return connection.execute(asked).fetchone()
