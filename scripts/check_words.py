"""Checks docstrings, comments, messages, names and documents against the word list of the project.

Usage: python scripts/check_words.py [PATH ...]    default: the whole repository

The list holds words that say less than the term of the field: a reader who searches for "presigned
URL" or "retry budget" finds nothing under "address" or "patience". Each entry names what to write
instead. A word may stand where it is the term itself; `ALLOWED` lists those.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]

# Nowhere: neither in code nor in documents.
EVERYWHERE = {
    r"nobody|whoever|whomever|somebody|anybody|everybody": "the client, the server, a user, no one",
    r"anew": "again; restart",
    r"mend(s|ed|ing)?": "fix",
    r"meanwhile": "until then; while ...",
    r"of before": "previous, legacy",
    r"hear(s|d)?": "receive, be notified, contact",
    r"bells?": "notification, wake-up channel",
    r"patien(ce|t|tly)": "timeout, retry budget",
    r"halves": "partial digest",
    r"strangers?|misfits?": "unexpected response, validation error",
    r"crews?|desk": "worker pool, cache",
    r"forg(et|ets|ot|otten)": "evict, delete, drop",
    r"seats?": "slot",
    r"cease[sd]?": "stop",
    r"presence": "status",
    r"past the server": "direct upload, direct download",
    r"twice is once|gone already is done": "idempotent",
    r"private server": "embedded server",
    r"made a mistake": "internal error",
}
# Not in docstrings and comments of the package, nor in its messages.
CODE = {
    r"tells?|told|telling": "report, log, return, show",
    r"say(s|ing)?|said": "report, return, state",
    r"look(s|ed|ing)?": "inspect, check, read",
    r"rooms?": "capacity, space",
    r"pieces?|materials?": "part, range, chunk; blob",
    r"shapes?": "schema",
    r"doors?": "origin check; endpoint",
    r"remember(s|ed|ing)?": "cache, keep",
    r"standings?": "quota snapshot",
    r"(pre)?signed address(es)?|address(es)? (of|in) (a|the) (bucket|store)": "presigned URL",
}
# Parts of names in the package.
NAMES = {
    r"told|tell|tells|says|heard|hears": "report, message, reason",
    r"patience|patiently|patient": "timeout, retries",
    r"halves|standing|standings|crew|desk|misfit|stranger|bell|seat|seats": "see above",
    r"seen|look|looks|looked|presence": "status, inspect",
    r"room|rooms": "capacity, space",
    r"piece|pieces|material|materials": "part, range, chunk; blob",
    r"shape|shapes": "schema",
    r"door|doors": "origin, endpoint",
    r"anew|meanwhile|nobody|somebody|whoever|mend": "see above",
    r"remembered|forget|forgotten|forgets": "cached; evict, delete",
}
# The word is the term itself.
ALLOWED = re.compile(
    r"(?i)\blook(s|ed|ing)? ?-?(up|ahead|behind|around)\b|\btell(s)? apart\b"
    r"|tensor shape|shape of (a |the )?(tensor|array|batch)|\.shape\b|\bbroadcast shape"
    r"|x-[\w-]+|seen_at|first_seen_at"
    # Fields of an order to an agent, and settings.
    r"|^patience$|^store_patience$|^door$"
    # Parameters of messages are part of the HTTP interface.
    r"|\{\w+\}"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    path: Path
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}; write: {self.instead}"


def main(arguments: list[str]) -> int:
    paths = [Path(argument).resolve() for argument in arguments] or default_paths()
    findings = [finding for path in files_of(paths) for finding in check_file(path)]
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} words to replace; the list is in scripts/check_words.py")
    return 1 if findings else 0


def default_paths() -> list[Path]:
    names = ("src", "docs", "scripts", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "deploy")
    return [TOP / name for name in names]


def files_of(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        else:
            found = (*path.rglob("*.py"), *path.rglob("*.md"))
            yield from sorted(file for file in found if "__pycache__" not in file.parts)


def check_file(path: Path) -> list[Finding]:
    if path == Path(__file__).resolve() or "examples" in path.parts:
        return []
    shown = path.relative_to(TOP) if path.is_relative_to(TOP) else path
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return list(matches(shown, 1, without_code(text), EVERYWHERE))
    words = EVERYWHERE | CODE if "src" in path.parts else EVERYWHERE
    found = [f for line, prose in prose_of(text) for f in matches(shown, line, prose, words)]
    if "src" in path.parts:
        found += [f for line, name in names_of(text) for f in name_matches(shown, line, name)]
    return sorted(found, key=lambda finding: finding.line)


def matches(path: Path, line: int, text: str, words: dict[str, str]) -> Iterator[Finding]:
    text = ALLOWED.sub(lambda match: " " * len(match[0]), text)
    for pattern, instead in words.items():
        for match in re.finditer(rf"(?i)\b(?:{pattern})\b", text):
            at = line + text.count("\n", 0, match.start())
            yield Finding(path=path, line=at, word=match[0], instead=instead)


def name_matches(path: Path, line: int, name: str) -> Iterator[Finding]:
    if ALLOWED.search(name):
        return
    parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    for pattern, instead in NAMES.items():
        for part in parts:
            if re.fullmatch(pattern, part.lower()):
                yield Finding(path=path, line=line, word=name, instead=instead)


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings and, of message tables, the sentences; each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:)", token.string):
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.lineno, node.value.value
        elif isinstance(node, ast.Tuple) and is_sentence(node):
            first = node.elts[0]
            assert isinstance(first, ast.Constant)
            yield node.lineno, str(first.value)


def is_sentence(node: ast.Tuple) -> bool:
    """A pair of an English and a Chinese text."""
    texts = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return len(texts) == len(node.elts) == 2 and bool(re.search(r"[\u4e00-\u9fff]", texts[1]))


def names_of(text: str) -> Iterator[tuple[int, str]]:
    """Names that the module defines: classes, functions, arguments, variables, fields."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def without_code(text: str) -> str:
    """A document with code blocks, code spans and link targets blanked out, lines kept."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = re.sub(r"(?s)```.*?```", blank, text)
    text = re.sub(r"`[^`\n]*`", blank, text)
    return re.sub(r"\]\([^)\n]*\)", blank, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
