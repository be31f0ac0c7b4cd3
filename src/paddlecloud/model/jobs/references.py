"""How a person names a job: by its id, the beginning of the id, `last`, or the job's name.

The server resolves references (`server/services/jobs/references.py`); the client only has to know
which of them are full ids. No typing here: every command about a job loads this module.
"""

from __future__ import annotations

LAST = "last"
"""The newest job of the caller."""
PREFIX = "job-"
DIGITS = 32
LEAST_DIGITS = 4
"""Of the beginning of an id."""
MAX_REFERENCE = 128
"""Characters; a job name has no more."""


def is_job_id(text: str) -> bool:
    return text.startswith(PREFIX) and len(text) == len(PREFIX) + DIGITS and _is_hex(text[4:])


def id_range(text: str) -> tuple[str, str] | None:
    """The least and the greatest id that begin so, with or without `job-`; None if the text cannot
    be the beginning of an id."""
    digits = text.removeprefix(PREFIX)
    missing = DIGITS - len(digits)
    if len(digits) < LEAST_DIGITS or missing < 0 or not _is_hex(digits):
        return None
    return f"{PREFIX}{digits}{'0' * missing}", f"{PREFIX}{digits}{'f' * missing}"


def is_reference(text: str) -> bool:
    """Whether a job can be named so at all: what is no job name is no id either."""
    named = 0 < len(text) <= MAX_REFERENCE and text.isprintable() and text == text.strip()
    return named and "/" not in text and "\\" not in text and text not in (".", "..")


def _is_hex(digits: str) -> bool:
    return not digits.strip("0123456789abcdef")
