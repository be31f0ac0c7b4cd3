"""Background loops of the server: each a `tick(deps, now)` that recomputes everything from facts.

`runner` runs them in threads, most of them on one of several servers at a time. A crash in a tick
needs no repair: the next one sees the same facts. The work itself is done by `services`.
"""
