"""The agent as one file that any Python 3.11 runs: `python agent.pyz --config agent.json`.

For machines that have nothing of ours installed. The file holds the modules that the agent really
imports and is the same byte for byte wherever it is made from the same sources.
"""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[4]
START = "paddlecloud.agent.__main__"
_MAIN = "import sys\nfrom paddlecloud.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def package() -> tuple[bytes, str]:
    """The packed agent of this version, and its sha256."""
    content = pack()
    return content, hashlib.sha256(content).hexdigest()


def is_older(version: str, than: str) -> bool:
    """Whether one version is older than another, by their numbers."""

    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split("+")[0].split(".") if word.isdigit()]

    return numbers(version) < numbers(than)


def pack(sources: Path = SOURCES) -> bytes:
    out = io.BytesIO()
    out.write(_SHEBANG)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for path in sorted(needed(sources).values()):
            _add(archive, path.relative_to(sources).as_posix(), path.read_bytes())
    return out.getvalue()


def needed(sources: Path = SOURCES) -> dict[str, Path]:
    """Every module of ours that the agent imports, at its start or later, with its file."""
    found: dict[str, Path] = {}
    waiting = [START]
    while waiting:
        name = waiting.pop()
        path = _file(sources, name)
        if path is None or name in found:
            continue
        found[name] = path
        parent = name.rpartition(".")[0]
        waiting += [parent] if parent else []
        waiting += _imports(ast.parse(path.read_bytes()).body)
    return found


def _file(sources: Path, name: str) -> Path | None:
    plain = sources.joinpath(*name.split("."))
    for path in (plain.with_suffix(".py"), plain / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    """What the statements import, except for the type checker."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from _imports(statement.orelse)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr = 0o644 << 16
    archive.writestr(info, content, zipfile.ZIP_DEFLATED)
