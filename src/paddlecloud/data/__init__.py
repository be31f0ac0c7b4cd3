"""The training-side SDK: RecordIO files, readers that share a data set between trainers.

Imports nothing else of ours, so that a training image can contain it alone; it needs the standard
library and cramjam for snappy, and uses `isal` for checksums if installed. Names are imported on
first use. `paddle` has a data set for `paddle.io`, `compat` runs scripts of 2017.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.data import recordio
    from paddlecloud.data._readers import records, samples
    from paddlecloud.data.compat import install_compat
    from paddlecloud.data.legacy2017.dataset import cluster_files_reader, convert, split
    from paddlecloud.data.legacy2017.pickles import dumps, load, loads, safe_load, safe_loads
    from paddlecloud.data.recordio.corruption import Damage, DamagedFile
    from paddlecloud.data.shard import Share, share
    from paddlecloud.data.shard import from_environment as this_trainer
    from paddlecloud.data.taskqueue.reader import TaskReader, task_reader

__all__ = [
    "Damage", "DamagedFile", "Share", "TaskReader", "cluster_files_reader", "convert", "dumps",
    "install_compat", "load", "loads", "recordio", "records", "safe_load", "safe_loads", "samples",
    "share", "split", "task_reader", "this_trainer",
]  # fmt: skip

_HOMES = {
    "Damage": "recordio.corruption",
    "DamagedFile": "recordio.corruption",
    "Share": "shard",
    "TaskReader": "taskqueue.reader",
    "cluster_files_reader": "legacy2017.dataset",
    "convert": "legacy2017.dataset",
    "dumps": "legacy2017.pickles",
    "install_compat": "compat",
    "load": "legacy2017.pickles",
    "loads": "legacy2017.pickles",
    "records": "_readers",
    "safe_load": "legacy2017.pickles",
    "safe_loads": "legacy2017.pickles",
    "samples": "_readers",
    "share": "shard",
    "split": "legacy2017.dataset",
    "task_reader": "taskqueue.reader",
    "this_trainer": "shard",
}


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415 - a script pays only for what it takes

    if name == "recordio":
        return import_module("paddlecloud.data.recordio")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"paddlecloud.data.{_HOMES[name]}")
    return getattr(home, "from_environment" if name == "this_trainer" else name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
