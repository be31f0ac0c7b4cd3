"""Writes the packed agent (`server/services/agents/package.py`) to a file."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"


def pack_file(target: Path) -> None:
    sys.path.insert(0, str(SOURCES))
    from paddlecloud.server.services.agents import package  # noqa: PLC0415 - not installed maybe

    aside = target.with_name(target.name + ".part")
    aside.write_bytes(package.pack())
    aside.chmod(0o755)
    aside.replace(target)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python scripts/pack_agent.py FILE\n")
        return 2
    pack_file(Path(arguments[0]))
    sys.stdout.write(f"{arguments[0]}: {Path(arguments[0]).stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
