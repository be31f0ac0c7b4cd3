"""Runs scripts of 2017 on Python 3: provides `recordio` and the data parts of `paddle.v2`.

`install_compat()` at the beginning of a script, or `python -m paddlecloud.data.compat script.py`.
Modules are created when they are imported; a real `paddle` stays and gets a submodule `v2`. Only
the data functions exist: training with the v2 API needs the Paddle of that time.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from paddlecloud.data import recordio
from paddlecloud.data.legacy2017 import dataset, download, pickles, uci_housing

_USAGE = "python -m paddlecloud.data.compat SCRIPT [ARGUMENT ...]\n"


def install_compat() -> None:
    """Make the modules importable. Idempotent."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def main(words: Sequence[str]) -> int:
    if not words or words[0].startswith("-"):
        sys.stderr.write(_USAGE)
        return 2
    script = Path(words[0])
    if not script.is_file():
        sys.stderr.write(f"{script}: there is no such script\n")
        return 2
    install_compat()
    sys.argv = list(words)
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    return 0


class _Finder(MetaPathFinder, Loader):
    """Finds the modules in `_MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = fullname == "paddle" and PathFinder.find_spec(fullname, path) is not None
        if fullname not in _MODULES or real:
            return None
        return spec_from_loader(fullname, self, is_package=fullname in _PACKAGES)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_MODULES[module.__name__]())
        if module.__name__ in _PACKAGES:
            vars(module)["__getattr__"] = _children(module.__name__)


def _children(package: str) -> Callable[[str], ModuleType]:
    """`import paddle.v2 as paddle` and then `paddle.dataset.common` was the custom."""

    def child(name: str) -> ModuleType:
        if f"{package}.{name}" not in _MODULES:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return child


def recordio_creator(
    paths: str | Sequence[str], buf_size: int = 100
) -> Callable[[], Iterator[Any]]:
    """`paddle.v2.reader.creator.recordio`: a reader of pickled samples. Reading is fast enough
    without the buffer that `buf_size` asked for."""
    del buf_size
    target = paths if isinstance(paths, str) else ",".join(paths)

    def reader() -> Iterator[Any]:
        with recordio.Reader(target) as records:
            yield from map(pickles.loads, records)

    return reader


def _pickle() -> dict[str, Any]:
    """`cPickle`: what Python 2 wrote can be read."""
    import pickle  # noqa: PLC0415 - its names are taken over only for scripts that want cPickle

    names = {name: getattr(pickle, name) for name in pickle.__all__}
    return {**names, "load": pickles.load, "loads": pickles.loads}


def _common() -> dict[str, Any]:
    return {
        "DATA_HOME": download.data_home(),
        "cluster_files_reader": dataset.cluster_files_reader,
        "convert": dataset.convert,
        "download": download.download,
        "md5file": download.md5file,
        "split": dataset.split,
    }


_MODULES: dict[str, Callable[[], dict[str, Any]]] = {
    "cPickle": _pickle,
    "paddle": dict,
    "paddle.v2": dict,
    # The documents call `dataset.convert`, which never existed there; here it does.
    "paddle.v2.dataset": lambda: {"convert": dataset.convert, "split": dataset.split},
    "paddle.v2.dataset.common": _common,
    "paddle.v2.dataset.uci_housing": lambda: {
        name: getattr(uci_housing, name)
        for name in ("URL", "MD5", "feature_names", "train", "test")
    },
    "paddle.v2.reader": dict,
    "paddle.v2.reader.creator": lambda: {"recordio": recordio_creator},
    "recordio": lambda: {"reader": recordio.reader, "writer": recordio.writer},
}
_PACKAGES = {"paddle", "paddle.v2", "paddle.v2.dataset", "paddle.v2.reader"}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
