"""A bit of a stored file flips: it is found, and the next job of these files has it right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from tests.integration.cli.person import Person

WORDS = b"to be or not to be\n"


def flip(path: Path) -> None:
    """Size and times stay as they are."""
    found = path.stat()
    with path.open("r+b") as file:
        file.write(bytes([WORDS[0] ^ 1]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def runs(person: Person) -> str:
    """The log of a job with these files."""
    words = ("--files=job", "--start_cmd=sh run.sh", "--watch_mode=1")
    done = person.types("submit_job", *words)
    return done.out


def test_damage_is_found_and_the_next_job_is_right(newcomer: Callable[[str], Person]) -> None:
    person = newcomer("home")
    job = person.here / "job"
    job.mkdir()
    (job / "run.sh").write_text("cat words\n")
    (job / "words").write_bytes(WORDS)
    for number in range(80):  # enough for a tree that jobs share
        (job / f"{number}").write_text(str(number))
    assert WORDS.decode() in runs(person)
    sound = person.runs("admin", "verify", "--json")
    assert (sound.code, sound.json["damaged"], sound.json["files"]) == (0, [], 82)
    digest = hashlib.sha256(WORDS).hexdigest()
    (stored,) = person.home.glob(f"store/users/*/blobs/*/{digest}")
    flip(stored)
    told = person.runs("admin", "verify")
    assert told.code == 1
    assert ": words, in job-" in told.out
    assert told.out.endswith("1 damaged, 0 missing\n")
    assert stored.exists()
    assert person.runs("admin", "verify", "--repair").code == 1
    assert not stored.exists()
    job_id = told.out.partition(", in ")[2][:36]
    words = (job_id, "--prefix=/", "--download=1", "--download_dir=got", "--json")
    got = person.types("get_files", *words)
    assert got.code == 1
    assert "were skipped: words;" in got.err
    assert "users/" not in got.err
    assert len([path for path in (person.here / "got").rglob("*") if path.is_file()]) == 82
    assert WORDS.decode() in runs(person)
    assert stored.read_bytes() == WORDS
    healed = person.runs("admin", "verify", "--json")
    assert (healed.code, healed.json["damaged_files"]) == (0, 0)
