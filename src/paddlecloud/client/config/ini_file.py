"""Reads and writes client.conf, in the loose INI dialect of the 2020 documents.

configparser does not read that dialect, and its import costs 12 ms.
"""

from __future__ import annotations

import io
import os

from paddlecloud.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_FILE = 1024 * 1024
_ALIASES = {"userid": "user_id"}
_MARKS = ("//", "#", ";")
_BOM = b"\xef\xbb\xbf"


def parse(
    data: bytes, path: str, sections: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, int]], list[ConfigError]]:
    """Values with their line numbers by `section.key`, and warnings about names that are not among
    the keys of these sections."""
    found: dict[str, tuple[str, int]] = {}
    warnings: list[ConfigError] = []
    for number, section, item in _items(_decode(data, path), path):
        where = {"origin": f"{path}:{number}", "section": section}
        if section not in sections:
            if not item.key:
                near = _closest(section, tuple(sections))
                warnings.append(ConfigError("config_unknown_section", suggestion=near, **where))
        elif item.key and item.key not in sections[section]:
            where |= {"key": item.key, "suggestion": _closest(item.key, sections[section])}
            warnings.append(ConfigError("config_unknown_key", **where))
        elif item.key:
            found[f"{section}.{item.key}"] = (item.value, number)
    return found, warnings


def write_main(path: str, user_id: str, ak: str, sk: str, template: str = "") -> None:
    """Set the keys of [main] in a file, or create it from `template`; every other byte stays.

    The file is replaced in one step and readable by its owner only.
    """
    wanted = {"user_id": user_id, "ak": ak, "sk": sk}
    for name, value in wanted.items():
        # Would it be read back as it is?
        bare = value.strip() == value and value.isprintable() and value != ""
        if not bare or _uncomment(f" {value}") != f" {value}":
            raise ConfigError("config_value", path=path, name=f"main.{name}")
    opened = read_file(path)
    data = opened[0] if opened else template.encode()
    mark = _BOM if data.startswith(_BOM) else b""
    text = _with_main(_decode(data, path), wanted, path)
    _replace(path, mark + text.encode())


def read_file(path: str) -> tuple[bytes, int] | None:
    """Content and mode of a file, or None if there is none."""
    try:
        # A pipe without a writer would otherwise hold the command for ever.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            mode = os.fstat(fd).st_mode
            data = b""
            while (block := os.read(fd, MAX_FILE)) and len(data) <= MAX_FILE:
                data += block
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError("config_unreadable", path=path, reason=reason) from error
    if len(data) > MAX_FILE:
        raise ConfigError("config_too_large", path=path, limit=MAX_FILE)
    return data, mode


def _decode(data: bytes, path: str) -> str:
    content = data.removeprefix(_BOM)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        offset = error.start + len(data) - len(content)
        raise ConfigError("config_encoding", path=path, offset=offset) from error


class _Item:
    """A section (no key), or a key with the position of its value in the line."""

    __slots__ = ("end", "key", "start", "value")

    def __init__(self, key: str = "", value: str = "", start: int = 0) -> None:
        self.key = key
        self.value = value
        self.start = start
        self.end = start + len(value)


def _items(text: str, path: str) -> Iterator[tuple[int, str, _Item]]:
    """Line number, section and item of every line but comments and empty ones."""
    section = ""
    for number, line in enumerate(_lines(text), 1):
        bare = line.strip()
        if not bare or bare.startswith(_MARKS):
            continue
        name = _section(bare)
        item = _Item() if name else _entry(line)
        if item is None:
            # A key that lost its `=` must not end up in a terminal or a log.
            words = [word if len(word) < 16 else f"{word[:4]}***" for word in bare[:200].split()]
            shown = " ".join(words)[:80]
            raise ConfigError("config_line", origin=f"{path}:{number}", line=shown)
        section = name or section
        if not section:
            raise ConfigError("config_no_section", origin=f"{path}:{number}", key=item.key[:40])
        yield number, section, item


def _lines(text: str) -> list[str]:
    """Lines with their ends; unlike splitlines() only line feed and carriage return end one."""
    return list(io.StringIO(text, newline=""))


def _section(bare: str) -> str:
    """The name in `[name]`; `[name]:` is what one of the documents prints."""
    name, closed, rest = bare[1:].partition("]")
    plain = bare.startswith("[") and closed and _uncomment(rest).strip() in ("", ":")
    return name.strip().lower() if plain else ""


def _entry(line: str) -> _Item | None:
    places = [place for place in (line.find("="), line.find(":")) if place >= 0]
    if not places or line.lstrip().startswith("["):
        return None
    at = min(places)
    key = line[:at].strip().lower()
    if not key:
        return None
    content = _uncomment(line[at + 1 :].rstrip("\r\n"))
    value = content.strip()
    blanks = len(content) - len(content.lstrip()) if value else min(1, len(content))
    return _Item(_ALIASES.get(key, key), value, at + 1 + blanks)


def _uncomment(text: str) -> str:
    """Cut a comment off; a mark counts only after a blank, so that URLs and keys stay whole."""
    for at in range(1, len(text)):
        if text[at - 1].isspace() and text.startswith(_MARKS, at):
            return text[:at]
    return text


def _closest(word: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - 8 ms that only a typing mistake costs

    return ", ".join(get_close_matches(word, known, 1) or known)


def _with_main(text: str, wanted: Mapping[str, str], path: str) -> str:
    lines = _lines(text)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    places: dict[str, tuple[int, _Item]] = {}
    last = -1
    for number, section, item in _items(text, path):
        if section == "main":
            last = number - 1
            places[item.key] = (last, item)
    missing = [f"{key} = {wanted[key]}{end}" for key in wanted if key not in places]
    for key in wanted:
        if key in places:
            at, item = places[key]
            before, after = lines[at][: item.start], lines[at][item.end :]
            gap = "" if before[-1:].isspace() or item.value else " "
            after_gap = "" if not after or after[0].isspace() else " "
            lines[at] = f"{before}{gap}{wanted[key]}{after_gap}{after}"
    if missing and lines and not lines[last].endswith(("\r", "\n")):
        lines[last] += end
    if last < 0:
        return "".join([*lines, end if lines else "", f"[main]{end}", *missing])
    return "".join([*lines[: last + 1], *missing, *lines[last + 1 :]])


def _replace(path: str, data: bytes) -> None:
    from pathlib import Path  # noqa: PLC0415 - 15 ms that only writing costs
    from tempfile import mkstemp  # noqa: PLC0415 - 15 ms that only writing costs

    try:
        target = Path(path).resolve()  # a link to a file kept elsewhere stays a link
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = mkstemp(prefix=".client.conf.", dir=target.parent)
        fresh = Path(name)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            fresh.replace(target)
        except BaseException:
            fresh.unlink()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("config_unwritable", path=path, reason=reason) from error
