"""GPU utilisation and memory from NVIDIA's management library (NVML), where it is installed.

A card belongs to one replica at a time, so the use of a card is that of its replica. The library is
loaded on first use, and what it does not report is left out. This was written from NVML's
documentation and not run on a machine with a card.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_LIBRARY = "libnvidia-ml.so.1"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Cards:
    """The cards of this machine; `library` is NVML after `nvmlInit`."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handles: dict[int, ctypes.c_void_p] = {}

    def use(self, indexes: Collection[int]) -> dict[str, Any]:
        """`gpu`: the sum of utilisation, 1.0 per card; `gpu_memory`: bytes. Empty if not known."""
        found = [self._one(index) for index in indexes]
        known = [one for one in found if one is not None]
        if not known:
            return {}
        return {
            "gpu": round(sum(rate for rate, _ in known) / 100, 2),
            "gpu_memory": sum(used for _, used in known),
        }

    def _one(self, index: int) -> tuple[int, int] | None:
        handle, rates, memory = self._handles.get(index), _Rates(), _Memory()
        if handle is None:
            handle, number = ctypes.c_void_p(), ctypes.c_uint(index)
            if self._library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
                return None
            self._handles[index] = handle
        if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)):
            return None
        if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        return int(rates.gpu), int(memory.used)


def count() -> int:
    """How many cards the driver of this machine reports; 0 without a driver."""
    with suppress(OSError, AttributeError):
        library, found = ctypes.CDLL(_LIBRARY), ctypes.c_uint(0)
        if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetCount_v2(ctypes.byref(found)) == 0:
            return found.value
    return 0


def open_cards() -> Cards | None:
    """The cards of this machine; None without the library or a driver."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(_LIBRARY)
        if library.nvmlInit_v2() == 0:
            return Cards(library)
    return None


def visible(env: Mapping[str, str]) -> tuple[int, ...]:
    """The cards that a replica with this environment was given."""
    words = (word.strip() for word in env.get(_VISIBLE, "").split(","))
    return tuple(int(word) for word in words if word.isdigit())
