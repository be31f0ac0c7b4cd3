"""Samples as bytes: pickle as in 2017, and a reader of pickles that runs no code.

Loading an untrusted pickle runs its code: use `safe_loads` for data that is not yours. It accepts
plain values (numbers, texts, bytes, lists, tuples, dictionaries, sets) and refuses
everything else.
"""

from __future__ import annotations

import codecs
import io
import pickle
from typing import Any, BinaryIO

#: Python 2 reads nothing above, and the data sets of 2017 are shared with it.
PROTOCOL = 2


class UnsafePickle(pickle.UnpicklingError):
    """A pickle asks for more than plain values."""


def dumps(sample: object) -> bytes:
    return pickle.dumps(sample, PROTOCOL)


def dump(samples: object, file: BinaryIO) -> None:
    pickle.dump(samples, file, PROTOCOL)


def loads(data: bytes) -> Any:
    """Any pickle, of Python 2 too. It may run code: your own data only."""
    return pickle.loads(data, encoding="latin1")


def load(file: BinaryIO) -> Any:
    """The same from a file."""
    return pickle.load(file, encoding="latin1")


def safe_loads(data: bytes) -> Any:
    """A pickle of plain values; UnsafePickle if it holds anything else."""
    return safe_load(io.BytesIO(data))


def safe_load(file: BinaryIO) -> Any:
    """The same from a file."""
    return _PlainUnpickler(file, encoding="latin1").load()


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes for Python 2; any other encoding would be a call of its own."""
    if codecs.lookup(encoding).name != "iso8859-1":
        raise UnsafePickle(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


_PLAIN: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _latin1,
    ("builtins", "bytes"): _empty_bytes,
    ("builtins", "complex"): complex,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "set"): set,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module
        if (module, name) not in _PLAIN:
            raise UnsafePickle(f"{module}.{name} is not a plain value")
        return _PLAIN[module, name]

    def persistent_load(self, pid: object) -> Any:
        raise UnsafePickle(f"a reference to something outside: {pid!r}")
