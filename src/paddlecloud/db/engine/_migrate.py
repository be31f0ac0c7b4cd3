"""Migrates a database to the schema of this version, by numbered files that are never edited.

Each file of `migrations/` is applied once, in order, and recorded with its checksum. A database of
a newer version is refused, because old code could damage it, unless every newer file declares that
servers of our number still work with it: `-- oldest: N` in its first line. So old and new servers
can run side by side during an upgrade. A database with a different checksum is refused, because its
schema is unknown. The statements of a file end with a semicolon at the end of a line, and are SQL
that both engines understand.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import to_micros
from paddlecloud.model.errors import ConfigError

FOLDER = Path(__file__).parents[1] / "migrations"

_LEDGER = """create table if not exists schema_migrations (
    number integer primary key,
    name text not null,
    checksum text not null,
    applied_at bigint not null,
    oldest integer
)"""
_OLDEST = re.compile(r"-- oldest: (\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Migration:
    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def oldest(self) -> int:
        """The oldest number whose servers still work once this is applied; its own by default."""
        found = _OLDEST.match(self.text)
        return int(found.group(1)) if found else self.number

    @property
    def statements(self) -> list[str]:
        found = (self.text.strip() + "\n").split(";\n")
        return [statement.strip() for statement in found if statement.strip()]


def migrations(folder: Path = FOLDER) -> list[Migration]:
    """Every migration in `folder`, in order; their numbers leave no gap."""
    found = [
        Migration(number=int(path.name[:4]), name=path.stem, text=path.read_text("utf-8"))
        for path in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    ]
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ConfigError("database_migrations_gap", folder=str(folder))
    return found


def migrate(tx: Tx, *, now: datetime, folder: Path = FOLDER, existing: str = "") -> list[int]:
    """Apply the missing migrations, in the caller's transaction, and return their numbers.

    `existing` names a database that must have tables already: ConfigError if it has none.
    """
    known = migrations(folder)
    tx.run(_LEDGER)
    applied: dict[int, str] = dict(tx.all("select number, checksum from schema_migrations"))
    newest = max(applied, default=0)
    if existing and not newest:
        raise ConfigError("database_lost", database=existing)
    if newest == 1:
        # Only the first release stopped at 1, and its ledger had no such column.
        tx.run("alter table schema_migrations add column oldest integer")
    newer = tx.all("select oldest from schema_migrations where number > ?", (len(known),))
    if not all(oldest is not None and oldest <= len(known) for (oldest,) in newer):
        raise ConfigError("database_newer", found=newest, known=len(known))
    for migration in known[:newest]:
        if applied.get(migration.number) != migration.checksum:
            raise ConfigError("database_migration_edited", name=migration.name)
    for migration in known[newest:]:
        for statement in migration.statements:
            tx.run(statement)
        row = (migration.number, migration.name, migration.checksum, to_micros(now))
        tx.run(
            "insert into schema_migrations (number, name, checksum, applied_at, oldest)"
            " values (?, ?, ?, ?, ?)",
            (*row, migration.oldest),
        )
    return [migration.number for migration in known[newest:]]
