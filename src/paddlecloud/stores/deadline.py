"""Whether somebody waits for what a thread asks of a store, who would hear of silence too late.

A caller of the server gives up after half a minute and then blames the server. So threads that
answer requests are prompt: a store that says nothing is told of within seconds. Others, which no
caller waits for, have the patience that a store may need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Mind(threading.local):
    prompt = False


_mind = _Mind()


def be_prompt() -> None:
    """From now on this thread is prompt."""
    _mind.prompt = True


def is_prompt() -> bool:
    return _mind.prompt


@contextmanager
def prompt_if(prompt: bool) -> Iterator[None]:
    """What is done meanwhile is done for another thread, and as promptly as that one would."""
    before, _mind.prompt = _mind.prompt, prompt
    try:
        yield
    finally:
        _mind.prompt = before
