"""The real uv for tests: that of PATH, or the one that scripts/install-test-tools.sh installed."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from scripts import paddle

_CACHED = paddle.CACHE / "paddlecloud-dev" / "uv-0.13.8" / "uv"
UV = shutil.which("uv") or (str(_CACHED) if _CACHED.exists() else None)
needs_uv = pytest.mark.skipif(UV is None, reason="uv is missing: scripts/install-test-tools.sh")


def a_wheel(folder: Path, name: str = "tinything", version: str = "1.0") -> Path:
    """A wheel with one module that has its version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in files.items():
            wheel.writestr(inner, text)
    return path
