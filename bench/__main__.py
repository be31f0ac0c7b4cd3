"""Runs every measure and prints one table: what, goal, measured, met or missed.

Ratios are to `python -c pass`.

python -m bench            all
python -m bench cli jobs   those whose name contains a word
python -m bench queue      100,000 waiting jobs; minutes
python -m bench load [--seconds 300]   many people at once for that long, then 2,000 ends at once
python -m bench files      submitting files against cp and a copy loop; minutes
python -m bench tunnels    port-forward and exec -it against a direct connection
python -m bench machines   machines that joined: join, start, a gang over four, 200 idle; minutes
python -m bench stores     our S3 store against s5cmd and libraries, on a real S3 server; minutes
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from bench import measures
from bench.files import files
from bench.machines import machines
from bench.replicas import load
from bench.row import Row
from bench.stores import stores
from bench.tunnels import tunnels


def main(words: list[str]) -> int:
    print(f"python {platform.python_version()}, {platform.system()} {platform.release()}")
    print(f"{'what':64} {'goal':>16} {'measured':>18}")
    missed = 0
    for row in _rows(words):
        missed += not row.reached
        result = "MISSED" if not row.reached else "met" if row.goal not in ("", "-") else ""
        print(f"{row.what:64} {row.goal:>16} {row.measured:>18}  {result}", flush=True)
    return 1 if missed else 0


def _rows(words: list[str]) -> Iterator[Row]:
    if words and words[0] == "load":
        seconds = float(words[words.index("--seconds") + 1]) if "--seconds" in words else 300.0
        yield from load(seconds)
        return
    if words[:1] == ["queue"]:
        yield from measures.queue()
        return
    if words[:1] == ["files"]:
        yield from files()
        return
    if words[:1] == ["machines"]:
        yield from machines()
        return
    if words[:1] == ["stores"]:
        yield from stores()
        return
    if words[:1] == ["tunnels"]:
        yield from tunnels()
        return
    for measure in measures.ALL:
        name = measure.__name__
        if not words or any(word in name for word in words):
            yield from measure()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
