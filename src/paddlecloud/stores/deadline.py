"""Shorter timeouts for stores in threads that answer a request.

A client of the server gives up after half a minute and then blames the server. So threads that
answer requests are prompt: they report a silent store within seconds. Threads that no client waits
for use the timeouts that a store may need.
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
    """Work for another thread, as promptly as that thread would."""
    before, _mind.prompt = _mind.prompt, prompt
    try:
        yield
    finally:
        _mind.prompt = before
