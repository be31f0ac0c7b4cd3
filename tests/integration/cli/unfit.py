"""Directories and configurations that are unfit, each in its own way, for the wrong calls."""

from __future__ import annotations

import os
from pathlib import Path

_CONFIGURATIONS = {
    "no-section.conf": "ak = 1\n",
    "no-equals.conf": "[main]\nhello\n",
    "debug.conf": "[main]\ndebug = maybe\n",
    "port.conf": "[openapi]\nhost = server.example\nport = 99999\n",
    "port-word.conf": "[openapi]\nhost = server.example\nport = http\n",
    "host.conf": "[openapi]\nhost = ftp://server\n",
    "scheme.conf": "[openapi]\nhost = server.example\nscheme = gopher\n",
    "sk-blank.conf": "[main]\nak = one\nsk = two words\n",
    "ak-slash.conf": "[main]\nak = one/two\nsk = three\n",
    "no-keys.conf": "[openapi]\nhost = server.example\n",
    "no-sk.conf": "[main]\nak = one\n[openapi]\nhost = server.example\n",
}


def lay_out(here: Path) -> dict[str, str]:
    """Fill the directory; what the marks of the table stand for."""
    job = here / "job"
    job.mkdir()
    (job / "run.sh").write_text("echo hi\n")
    (here / "file.txt").write_text("not a directory\n")
    (here / "dangling").symlink_to("nowhere")
    (here / "empty").mkdir()
    _holding(here / "holds-itself", "again").symlink_to(".")
    _holding(here / "backslash", "a\\b").write_text("")
    (here / "foreign-name").mkdir()
    os.close(os.open(os.fsencode(here / "foreign-name") + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    for name, text in _CONFIGURATIONS.items():
        (here / name).write_text(text)
        (here / name).chmod(0o600)
    (here / "latin1.conf").write_bytes(b"[main]\nuser_id = caf\xe9\n")
    (here / "huge.conf").write_bytes(b"#" * (2**20 + 1))
    return {"<job>": str(job), "<here>": str(here)}


def _holding(directory: Path, name: str) -> Path:
    directory.mkdir()
    return directory / name
