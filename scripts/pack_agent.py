"""Packs the agent into one file that any Python 3.11 runs: `python agent.pyz --config agent.json`.

For machines that have nothing of ours installed. The file holds the modules that the agent really
imports and is the same byte for byte wherever it is made from the same sources.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[1] / "src"
START = "paddlecloud.agent.__main__"
_MAIN = "import sys\nfrom paddlecloud.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(target: Path, sources: Path = SOURCES) -> list[str]:
    """Write the packed agent to `target`; the names of the modules in it."""
    modules = needed(sources)
    aside = target.with_name(target.name + ".part")
    with aside.open("wb") as out:
        out.write(_SHEBANG)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, "__main__.py", _MAIN.encode())
            for path in sorted(modules.values()):
                _add(archive, path.relative_to(sources).as_posix(), path.read_bytes())
    aside.chmod(0o755)
    aside.replace(target)
    return sorted(modules)


def needed(sources: Path) -> dict[str, Path]:
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


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python scripts/pack_agent.py FILE\n")
        return 2
    modules = pack(Path(arguments[0]))
    sys.stdout.write(f"{arguments[0]}: {len(modules)} modules\n")
    return 0


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
