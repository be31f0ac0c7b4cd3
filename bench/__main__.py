"""Runs every measure and prints one table: what, measured, goal. Ratios are to `python -c pass`.

python -m bench            all
python -m bench cli jobs   those whose name contains a word
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from bench import measures
from bench.measures import Row


def main(words: list[str]) -> int:
    print(f"python {platform.python_version()}, {platform.system()} {platform.release()}")
    print(f"{'what':58} {'measured':>16} {'goal':>14}")
    missed = 0
    for row in _rows(words):
        missed += not row.reached
        mark = "" if row.reached else "  MISSED"
        print(f"{row.what:58} {row.measured:>16} {row.goal:>14}{mark}", flush=True)
    return 1 if missed else 0


def _rows(words: list[str]) -> Iterator[Row]:
    for measure in measures.ALL:
        name = measure.__name__
        if not words or any(word in name for word in words):
            yield from measure()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
