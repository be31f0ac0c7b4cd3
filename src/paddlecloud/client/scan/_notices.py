"""Notices about a scanned directory: codes of `messages` with their values."""

from __future__ import annotations

import os
from heapq import nlargest

from paddlecloud.client.file_names import few, shown
from paddlecloud.messages import joined, words
from paddlecloud.model.errors import Invalid
from paddlecloud.model.units import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = tuple[str, str, int, str, int, str]
    """path, kind, size, sha256, executable, target: one entry of a snapshot on the wire."""
    Note = tuple[str, dict[str, object]]

DEFAULT = "default"
"""The rule behind what is left out without being asked for."""
KEYS = "default: keys"
"""The same for files with PaddleCloud keys: a rule of its own, so that users notice it."""

_RULE_WORDS = {DEFAULT: "rule_default", KEYS: "rule_keys"}
_SHOWN_RULES, _SHOWN_LARGEST, _SHOWN_REFUSALS = 10, 5, 20


def files(entries: Iterable[Row], total: int, skipped: Iterable[str]) -> Note:
    """How many, how large, and the largest of them."""
    found = [row for row in entries if row[1] == "file"]
    if not found:
        rules = sorted({rule.rpartition(":")[0] for rule in skipped if rule not in _RULE_WORDS})
        return ("files_none_left", {"rules": few(rules)}) if rules else ("files_none", {})
    largest = nlargest(_SHOWN_LARGEST, found, key=lambda row: row[2])
    named = ", ".join(f"{shown(row[0])} ({format_size(row[2])})" for row in largest)
    return (
        "files_found",
        {"count": len(found), "size": format_size(total), "largest": named},
    )


def refusal(refused: Sequence[Invalid]) -> Invalid:
    """One sentence for each of the first, so that a user can fix them together."""
    if len(refused) == 1:
        return refused[0]
    sentences = [words(error.code, **error.params) for error in refused[:_SHOWN_REFUSALS]]
    return Invalid(
        "files_refused", count=len(refused), sentences=joined(("", *sentences), between="\n")
    )


def bare_links(links: Mapping[str, str], is_barred: Callable[[str], bool]) -> list[Note]:
    """Links to what was left out, which are broken in the job. `is_barred`: whether no rule could
    bring the target back."""
    found: dict[str, list[str]] = {"files_link_bare": [], "files_link_never": []}
    for path, meant in sorted(links.items()):
        code = "files_link_never" if is_barred(meant) else "files_link_bare"
        found[code].append(f"{path} -> {meant}")
    return [(code, {"links": few(named)}) for code, named in found.items() if named]


def outside_links(links: Mapping[str, str]) -> list[Note]:
    """Links that lead out of the directory, and are kept: what is there is not submitted."""
    found: dict[str, list[str]] = {"files_link_out": [], "files_link_gone": []}
    for path, target in sorted(links.items()):
        code = "files_link_out" if os.path.exists(target) else "files_link_gone"  # noqa: PTH110 - as in walk
        found[code].append(f"{path} -> {target}")
    return [(code, {"links": few(named)}) for code, named in found.items() if named]


def brought(paths: Sequence[str], entries: Iterable[Row]) -> list[Note]:
    """Files that .gitignore would have left out if no .paddlecloudignore overrode it."""
    kept = {row[0] for row in entries} if paths else ()
    submitted = [path for path in sorted(paths) if path in kept]
    return [("files_git_void", {"paths": few(submitted)})] if submitted else []


def left_out(skipped: Mapping[str, list[str]]) -> list[Note]:
    """What is not submitted, by the rule against it."""
    if not skipped:
        return []
    named = [
        joined((few(sorted(skipped[rule])), " [", _rule_text(rule), "]"), between="")
        for rule in sorted(skipped, key=_in_order)[:_SHOWN_RULES]
    ]
    more = len(skipped) - _SHOWN_RULES
    paths = joined(named)
    if more > 0:
        paths = words("rules_more", paths=paths, count=more)
    return [("files_skipped", {"paths": paths})]


def _in_order(rule: str) -> tuple[str, int]:
    """Line 2 of a file comes before line 10."""
    file, _, number = rule.rpartition(":")
    return (file, int(number)) if number.isdigit() else (rule, 0)


def _rule_text(rule: str) -> str:
    code = _RULE_WORDS.get(rule)
    return words(code) if code else shown(rule)
