"""Consistent copies of a database that is in use, and their way back.

SQLite: its online backup, which reads one snapshot and never blocks the writer. PostgreSQL: pg_dump
and pg_restore, which have to be installed and at least as new as the database server.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from errno import ENOSPC
from pathlib import Path

from paddlecloud.db.engine.sqlite import BUSY_SECONDS, is_missing, translated
from paddlecloud.model.errors import ConfigError, Refused


def check_copyable(place: str | Path) -> None:
    """Raise at once if there is no database, or no program that copies it."""
    if isinstance(place, str):
        _program("pg_dump")
    elif is_missing(place):
        raise ConfigError("database_missing", database=str(place))


def copy_database(place: str | Path, target: Path, environ: Mapping[str, str]) -> None:
    """Write a copy of the database to the new file `target`; `environ` is for pg_dump."""
    if isinstance(place, str):
        _postgres("pg_dump", place, environ, "--format=custom", f"--file={target}")
        return
    try:
        with closing(_open(place)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            (found,) = copy.execute("pragma quick_check(1)").fetchone()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(target)) from error
        raise translated(error, place) from error
    if found != "ok":
        raise Refused("database_damaged", database=str(place), detail=found)


def load_dump(source: Path, url: str, environ: Mapping[str, str]) -> None:
    """Fill an empty PostgreSQL database from a copy, completely or not at all."""
    options = ("--exit-on-error", "--single-transaction", str(source))
    _postgres("pg_restore", url, environ, *options)


def _open(path: Path) -> sqlite3.Connection:
    """Not read-only: without a server the log has to be opened, and removed again."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)


def _postgres(program: str, url: str, environ: Mapping[str, str], *options: str) -> None:
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - psycopg is optional

    # Other users of the machine can read the words of a command, but not its environment.
    address = conninfo_to_dict(url)
    password = address.pop("password", None)
    if password:
        environ = {**environ, "PGPASSWORD": str(password)}
    database = f"--dbname={make_conninfo('', **address)}"
    words = [
        _program(program),
        "--no-password",
        "--no-owner",
        "--no-privileges",
        database,
        *options,
    ]
    done = subprocess.run(words, env=environ, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Refused("postgres_program_failed", program=program, detail=" ".join(lines[-3:])[:500])


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Refused("postgres_program_missing", program=name)
    return found
