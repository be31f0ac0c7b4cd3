"""Shorter timeouts for stores in threads that answer a request.

A client of the server gives up after half a minute and then blames the server. So threads that
answer requests are prompt: they report a silent store within seconds. Threads that no client waits
for use the timeouts that a store may need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Thread(threading.local):
    prompt = False


_thread = _Thread()


def be_prompt() -> None:
    """From now on this thread is prompt."""
    _thread.prompt = True


def is_prompt() -> bool:
    return _thread.prompt


@contextmanager
def prompt_if(prompt: bool) -> Iterator[None]:
    """Work for another thread, as promptly as that thread would."""
    before, _thread.prompt = _thread.prompt, prompt
    try:
        yield
    finally:
        _thread.prompt = before
