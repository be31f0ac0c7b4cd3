"""Data for training: RecordIO files, and dealing a data set out to trainers.

This package stands alone: it needs the standard library, cramjam for snappy, and nothing else of
ours, so that a training image may hold it without the rest. `isal` makes checksums faster where it
is installed. Names are looked up on first use: a script pays only for what it takes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.data import recordio
    from paddlecloud.data.compat import install_compat
    from paddlecloud.data.damage import Damage, DamagedFile
    from paddlecloud.data.dataset import cluster_files_reader, convert, split
    from paddlecloud.data.generators import records, samples
    from paddlecloud.data.pickles import dumps, load, loads, safe_load, safe_loads
    from paddlecloud.data.tasks import TaskReader, task_reader
    from paddlecloud.data.trainer import Share, share
    from paddlecloud.data.trainer import from_environment as this_trainer

__all__ = [
    "Damage", "DamagedFile", "Share", "TaskReader", "cluster_files_reader", "convert", "dumps",
    "install_compat", "load", "loads", "recordio", "records", "safe_load", "safe_loads", "samples",
    "share", "split", "task_reader", "this_trainer",
]  # fmt: skip

_HOMES = {
    "Damage": "damage",
    "DamagedFile": "damage",
    "Share": "trainer",
    "TaskReader": "tasks",
    "cluster_files_reader": "dataset",
    "convert": "dataset",
    "dumps": "pickles",
    "install_compat": "compat",
    "load": "pickles",
    "loads": "pickles",
    "records": "generators",
    "safe_load": "pickles",
    "safe_loads": "pickles",
    "samples": "generators",
    "share": "trainer",
    "split": "dataset",
    "task_reader": "tasks",
    "this_trainer": "trainer",
}


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415 - a script pays only for what it takes

    if name == "recordio":
        return import_module("paddlecloud.data.recordio")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"paddlecloud.data.{_HOMES[name]}")
    return getattr(home, "from_environment" if name == "this_trainer" else name)
