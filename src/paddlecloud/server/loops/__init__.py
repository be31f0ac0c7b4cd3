"""Loops: each a `tick(deps, now)` that recomputes from facts, so that a crash needs no repair."""
