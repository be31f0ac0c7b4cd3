"""What a directory holds: rows of a snapshot, the files behind them, and what was left out.

`model.snapshot` says what the rows mean; the same directory has the same id there and here. Hashing
is skipped for files that a small cache knows to be unchanged. Nothing here talks to a server, and
nothing imports dataclasses, typing or pathlib: every submit pays for what this module loads.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH100, PTH110, PTH112, PTH115, PTH117, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import hashlib
import os
import stat
from heapq import nlargest
from json import dumps

from paddlecloud.client.caching import write_cache
from paddlecloud.client.naming import check_name, few, is_plain, shown, why_not
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError
from paddlecloud.model.names import link_meaning
from paddlecloud.model.quantities import format_size
from paddlecloud.model.texts import joined, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from io import FileIO

    from paddlecloud.client.handing import Handing
    from paddlecloud.client.ignoring import Rules

    Row = tuple[str, str, int, str, int, str]
    """path, kind, size, sha256, executable, target: one entry of a snapshot on the wire."""
    Source = tuple[str, int, str]
    """The file that holds some content: absolute path, size, and its stamp when it was read."""
    Note = tuple[str, dict[str, object]]

BLOCK = 1024 * 1024
#: From this size on a file goes by itself, in parts or as a whole.
BIG = 16 * BLOCK
OUR_IGNORE_FILE, GITS_IGNORE_FILE = ".paddlecloudignore", ".gitignore"
NEVER = frozenset((".git",))
SKIPPED_NAMES = frozenset(
    (
        *(".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache"),
        *(".svn", ".tox", "__pycache__"),
    )
)
SKIPPED_WITH = frozenset(("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG"))
"""A directory with one of these in it is an environment or a cache."""
SECRETS = frozenset(("agent.json", "credentials.json", "lock", "server.key"))
"""A directory with two of these in it may be a server's or an agent's of ours. What is in them
tells: others have files with such names, too."""
CLIENT_CONF = "client.conf"
DEFAULT = "default"
"""The rule behind what is left out without being asked for."""
KEYS = "default: keys"
"""The same for what holds secret keys of ours, told apart because nobody should miss it."""

_RULE_WORDS = {DEFAULT: "rule_default", KEYS: "rule_keys"}
_LOOKED_AT = NEVER | {CLIENT_CONF}
_HOME_PARTS = ("agent", "server")
_HOME_SIGNS = frozenset(("cache", "server.toml"))
"""What a home has beside those, and a directory of code with such parts hardly."""
_KEY_NAMES = frozenset((b"ak", b"sk", b"session_token"))
_PAIR = (b'"ak"', b'"sk"')
_LEAST_KEY = 32
"""Digits of a server's own key."""
_READ = 256 * 1024
_RACY_SECONDS = 2
"""A file changed so shortly before may change again without a new time stamp: do not cache it."""
_WORTH_FILES, _WORTH_BYTES = 200, 8 * BLOCK
"""Below both, hashing everything again is as fast as reading a cache."""
_CACHE_HEADER = "paddlecloud-files\t1"
_SHOWN_RULES, _SHOWN_LARGEST, _SHOWN_REFUSALS = 10, 5, 5
_REFUSALS = frozenset(("files_link_name", "files_link_outside", "files_link_whole", "files_name"))


class Scan:
    """What a directory holds."""

    __slots__ = (
        *("bytes", "canonical", "directory", "entries", "id", "notes", "read", "root"),
        "sources",
    )

    def __init__(self, root: str, walk: _Walk) -> None:
        self.root = root
        self.directory = os.path.basename(root) or "root"
        """Its own name, without what is above it."""
        self.entries: list[Row] = sorted(walk.rows)
        self.canonical = dumps(self.entries, ensure_ascii=True, separators=(",", ":"))
        """The rows as JSON, as they go to the server."""
        self.id = "sha256:" + hashlib.sha256(self.canonical.encode()).hexdigest()
        self.bytes = sum(row[2] for row in self.entries)
        self.sources = walk.sources
        """By sha256, a file with that content."""
        self.read = walk.read
        """By path the digest and the stamp of each file when it was read."""
        self.notes: list[Note] = [
            _found(self.entries, self.bytes),
            *_left_out(walk.skipped),
            *_bare(walk.links, self.entries, root),
        ]
        """What a person should be told: codes of `model.texts` with their values."""

    def changed(self) -> list[str]:
        """The files that are no longer as they were when they were read."""
        return [path for path, was in self.read.items() if _stamp_now(self.root, path) != was[65:]]


class Reading:
    """How far a scan is, for whoever looks at it meanwhile from another thread."""

    __slots__ = ("bytes", "files")

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0


def scan(
    directory: str,
    *,
    now: float,
    home: str | None = None,
    handing: Handing | None = None,
    reading: Reading | None = None,
) -> Scan:
    """The rows, the id and the contents of a directory.

    `home` is PADDLECLOUD_HOME: it keeps the cache of digests, and is itself never submitted. `now`
    (epoch seconds) tells which files are too fresh for that cache. Links to places outside, names
    that not every system can hold and unreadable files are refused by name. With `handing` big
    files that have to be read are copied for the server at the same time. `reading` counts along.
    """
    root = os.path.abspath(directory)
    _check_directory(directory, root)
    cache = _Cache(root, home)
    settled = int((now - _RACY_SECONDS) * 1e9)
    walk = _Walk(root, cache.known, settled, os.path.abspath(home) if home else "")
    walk.handing = handing
    walk.reading = reading or walk.reading
    walk.run()
    found = Scan(root, walk)
    if len(walk.read) >= _WORTH_FILES or found.bytes > _WORTH_BYTES:
        cache.save(walk.cacheable)
    return found


def stamp(status: os.stat_result) -> str:
    """While this stays the same, so does the content."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def unreadable(path: str, error: OSError) -> PaddleCloudError:
    if isinstance(error, FileNotFoundError):
        return Conflict("files_changed", path=shown(path))
    return Invalid("files_unreadable", path=shown(path), reason=error.strerror or str(error))


def _check_directory(given: str, root: str) -> None:
    if os.path.isdir(root):
        return
    if not os.path.lexists(root):
        raise Invalid("files_missing", path=shown(given))
    if not os.path.exists(root):
        target = shown(os.readlink(root))
        raise Invalid("files_link_nowhere", path=shown(given), target=target)
    raise Invalid("files_not_directory", path=shown(given))


class _Walk:
    """One pass over a directory."""

    def __init__(self, root: str, known: Mapping[str, str], settled: int, home: str) -> None:
        self.root = root
        self.handing: Handing | None = None
        self.reading = Reading()
        self.rows: list[Row] = []
        self.sources: dict[str, Source] = {}
        self.read: dict[str, str] = {}
        self.cacheable: dict[str, str] = {}
        """Of those, what will not change unnoticed."""
        self.skipped: dict[str, list[str]] = {}
        """By rule what it left out."""
        self.refused: list[Invalid] = []
        """Names and links that cannot be submitted."""
        self.links: dict[str, str] = {}
        """By path what a link leads to, both from the root on."""
        self._known = known
        self._settled = settled
        """Files changed after this (nanoseconds of the epoch) may still be changing."""
        self._home = home
        self._home_inode = _inode(home)

    def run(self) -> None:
        """Top down, as git does: below a directory that is left out no rule brings back a file."""
        waiting: list[tuple[str, Rules | None]] = [("", None)]
        while waiting:
            above, rules = waiting.pop()
            entries = self._entries(above)
            names = {entry.name for entry in entries}
            if not above and self._holds_keys(names):
                raise Invalid("files_hold_keys", path=shown(self.root))
            rule = self._rule_for_holder(above, names)
            if rule:
                self.rows = [row for row in self.rows if row[0] != above[:-1]]
                self._skip(above, rule)
                continue
            rules = self._rules(above, names, rules)
            for entry in entries:
                if self._take(above + entry.name, entry, rules):
                    waiting.append((f"{above}{entry.name}/", rules))
        if self.refused:
            raise _refusal(self.refused)

    def _rule_for_holder(self, above: str, names: set[str]) -> str:
        """Why a directory is left out for what it has in it, whatever other rules say: `!*/` means
        none of these. Empty when it is not."""
        if not above:
            return ""
        if not SKIPPED_WITH.isdisjoint(names):
            return DEFAULT
        secret = _is_secret(self._absolute(above), names)
        return KEYS if secret or self._has_parts(above, names) else ""

    def _has_parts(self, above: str, names: set[str]) -> bool:
        """Whether a server or an agent of ours has its directory there."""
        parts = [self._absolute(above + part) for part in _HOME_PARTS if part in names]
        return any(_is_secret(part, _names_in(part)) for part in parts)

    def _holds_keys(self, names: set[str]) -> bool:
        """Whether the directory itself is one that must not be submitted: one with keys, or a home
        of ours, this one or another."""
        if _is_secret(self.root, names) or self._is_home(_inode(self.root), self.root):
            return True
        return not _HOME_SIGNS.isdisjoint(names) and self._has_parts("", names)

    def _entries(self, above: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._absolute(above)) as entries:
                return list(entries)
        except OSError as error:
            if not above:
                reason = error.strerror or str(error)
                raise Invalid("files_closed", path=shown(self.root), reason=reason) from None
            raise unreadable(above, error) from None

    def _rules(self, above: str, names: set[str], rules: Rules | None) -> Rules | None:
        """The rules that hold in a directory: those from above, and its own before them."""
        wanted = [OUR_IGNORE_FILE, GITS_IGNORE_FILE]
        if rules is not None and rules.is_ours:
            wanted.remove(GITS_IGNORE_FILE)
        for name in wanted:
            if name in names:
                from paddlecloud.client import ignoring  # noqa: PLC0415 - only where there is one

                found = ignoring.load(self.root, above, name, rules)
                if found is not None:
                    return found
        return rules

    def _take(self, path: str, entry: os.DirEntry[str], rules: Rules | None) -> bool:
        """Keep one entry, or not; whether to go on below it."""
        directory = entry.is_dir(follow_symlinks=False)
        if directory or rules is not None or entry.name in _LOOKED_AT:
            rule = self._rule_against(path, entry, directory, rules)
            if rule:
                self._skip(f"{path}/" if directory else path, rule)
                return False
        try:
            self._keep(path, entry, directory)
        except Invalid as error:
            if error.code not in _REFUSALS:
                raise
            self.refused.append(error)
        return directory

    def _keep(self, path: str, entry: os.DirEntry[str], directory: bool) -> None:
        if not is_plain(path):
            check_name(path)
        if entry.is_file(follow_symlinks=False):
            if not self.refused:  # then nobody needs its digest
                self._file(path, entry)
        elif directory:
            self.rows.append((path, "dir", 0, "", 0, ""))
        elif entry.is_symlink():
            self._link(path)
        else:
            self._skip(path, DEFAULT)

    def _rule_against(
        self, path: str, entry: os.DirEntry[str], directory: bool, rules: Rules | None
    ) -> str:
        """Why an entry is left out; empty when it is not."""
        name = entry.name
        if name in NEVER or (directory and self._is_home(entry.inode(), entry.path)):
            return DEFAULT
        if name == CLIENT_CONF and not directory and _has_keys(entry.path):
            return KEYS
        verdict = rules.verdict(path, name, directory) if rules is not None else None
        if verdict is not None:
            return verdict
        return DEFAULT if directory and name in SKIPPED_NAMES else ""

    def _is_home(self, inode: int | None, path: str) -> bool:
        """By whichever name it was given; a look at the number of its inode costs nothing."""
        is_like = inode is not None and inode == self._home_inode
        return is_like and os.path.samefile(path, self._home)  # noqa: PTH121 - see the top

    def _skip(self, path: str, rule: str) -> None:
        self.skipped.setdefault(rule, []).append(path)

    def _file(self, path: str, entry: os.DirEntry[str]) -> None:
        try:
            status = _status(entry)
            known = self._known.get(path, "")
            self.reading.files += 1
            self.reading.bytes += status.st_size
            if known[65:] != stamp(status):
                status, known = _digest(entry.path, path, self.handing)
        except OSError as error:
            raise unreadable(path, error) from None
        sha256, size = known[:64], status.st_size
        executable = 1 if status.st_mode & stat.S_IXUSR else 0
        self.rows.append((path, "file", size, sha256, executable, ""))
        self.sources.setdefault(sha256, (entry.path, size, known[65:]))
        self.read[path] = known
        if status.st_mtime_ns < self._settled and status.st_ctime_ns < self._settled:
            self.cacheable[path] = known

    def _link(self, path: str) -> None:
        absolute = self._absolute(path)
        try:
            target = os.readlink(absolute)
        except OSError as error:
            raise unreadable(path, error) from None
        relative = _relative_target(self.root, path, target)
        meant = link_meaning(path, relative)
        real, root = os.path.realpath(absolute), os.path.realpath(self.root)
        if real == root:
            raise Invalid("files_link_whole", path=shown(path))
        if not meant or not _is_below(real, self.root):
            raise Invalid("files_link_outside", path=shown(path), target=shown(target))
        reason = why_not(meant)
        if reason:
            named = {"path": shown(path), "target": shown(target)}
            raise Invalid("files_link_name", **named, reason=reason)
        self.rows.append((path, "link", 0, "", 0, relative))
        self.links[path] = os.path.relpath(real, root).replace(os.sep, "/")

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino if path else None  # noqa: PTH116 - as the others, see the top
    except OSError:
        return None


def _status(entry: os.DirEntry[str], *, windows: bool = os.name == "nt") -> os.stat_result:
    """What a listing tells of a file. On Windows it tells no inode, which is part of a stamp."""
    return os.lstat(entry.path) if windows else entry.stat(follow_symlinks=False)


def _is_secret(directory: str, names: set[str]) -> bool:
    found = names & SECRETS
    return len(found) > 1 and any(_is_key(os.path.join(directory, name)) for name in found)


def _is_key(path: str) -> bool:
    """Whether a file holds a pair of keys, or the digits that a server makes its keys of."""
    data = _beginning(path)
    digits = data.strip()
    is_hex = len(digits) >= _LEAST_KEY and not digits.strip(b"0123456789abcdef")
    return is_hex or all(name in data for name in _PAIR)


def _names_in(directory: str) -> set[str]:
    """What lies in it; of one that cannot be read nothing, since the walk will say why."""
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - as the others, see the top
    except OSError:
        return set()


def _has_keys(path: str) -> bool:
    """Whether a configuration file holds a key: a line `ak = ...` or `sk = ...` with a value."""
    lines = _beginning(path).lower().splitlines()
    pairs = (line.replace(b":", b"=", 1).partition(b"=") for line in lines)
    return any(key.strip() in _KEY_NAMES and value.strip() for key, _, value in pairs)


def _beginning(path: str) -> bytes:
    """Of a file; of what is none nothing, nor of one that cannot be read: the walk says why."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(_READ)
    except OSError:
        return b""


def _digest(absolute: str, path: str, handing: Handing | None) -> tuple[os.stat_result, str]:
    """Read a file that holds still meanwhile: its status, and its sha256 and stamp as one text."""
    with open(absolute, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        sha256 = ""
        if status.st_size <= _READ:
            sha256 = hashlib.sha256(file.read()).hexdigest()
        elif handing is not None and status.st_size >= BIG:
            sha256 = handing.read(file.fileno(), status)
        sha256 = sha256 or _sha256_of(file)
        after = stamp(os.fstat(file.fileno()))
    if after != stamp(status):
        raise Conflict("files_changed", path=shown(path))
    return status, f"{sha256} {after}"


def _sha256_of(file: FileIO) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ))
    file.seek(0)
    while count := file.readinto(buffer):
        digest.update(buffer[:count])
    return digest.hexdigest()


def _stamp_now(root: str, path: str) -> str:
    try:
        return stamp(os.lstat(f"{root}/{path}"))
    except OSError:
        return ""


def _relative_target(root: str, path: str, target: str) -> str:
    """The target of a link, relative to its own directory when it lies in the tree."""
    above = os.path.join(root, os.path.dirname(path))
    if os.path.isabs(target) and _is_below(target, root):
        target = os.path.relpath(target, above)
    elif not os.path.isabs(target) and not link_meaning(path, target):
        # It goes out and may come in again by the name of the directory, which the copy has not.
        real = os.path.realpath(os.path.join(root, path))
        inside = os.path.relpath(real, os.path.realpath(above))
        target = inside if _is_below(real, root) else target
    return target.replace(os.sep, "/")


def _is_below(path: str, root: str) -> bool:
    real = os.path.realpath(root)
    return path.startswith((os.path.join(real, ""), os.path.join(root, "")))


def _found(entries: Iterable[Row], total: int) -> Note:
    files = [row for row in entries if row[1] == "file"]
    if not files:
        return "files_none", {}
    largest = nlargest(_SHOWN_LARGEST, files, key=lambda row: row[2])
    named = ", ".join(f"{shown(row[0])} ({format_size(row[2])})" for row in largest)
    return (
        "files_found",
        {"count": len(files), "size": format_size(total), "largest": named},
    )


def _refusal(refused: Sequence[Invalid]) -> Invalid:
    """One sentence for each of the first, so that they are mended at once."""
    if len(refused) == 1:
        return refused[0]
    told = [words(error.code, **error.params) for error in refused[:_SHOWN_REFUSALS]]
    return Invalid("files_refused", count=len(refused), sentences=joined(("", *told), between="\n"))


def _bare(links: Mapping[str, str], entries: Iterable[Row], root: str) -> list[Note]:
    """Links to what a rule left out: where the job runs they lead nowhere."""
    kept = {row[0] for row in entries}
    bare = [
        f"{path} -> {meant}"
        for path, meant in sorted(links.items())
        if meant not in kept and os.path.lexists(os.path.join(root, meant))
    ]
    return [("files_link_bare", {"links": few(bare)})] if bare else []


def _left_out(skipped: Mapping[str, list[str]]) -> list[Note]:
    if not skipped:
        return []
    named = [
        joined((few(sorted(skipped[rule])), " [", _rule_told(rule), "]"), between="")
        for rule in sorted(skipped, key=_in_order)[:_SHOWN_RULES]
    ]
    more = len(skipped) - _SHOWN_RULES
    told = joined(named)
    if more > 0:
        told = words("rules_more", paths=told, count=more)
    return [("files_skipped", {"paths": told})]


def _in_order(rule: str) -> tuple[str, int]:
    """Line 2 of a file comes before line 10."""
    file, _, number = rule.rpartition(":")
    return (file, int(number)) if number.isdigit() else (rule, 0)


def _rule_told(rule: str) -> str:
    code = _RULE_WORDS.get(rule)
    return words(code) if code else shown(rule)


class _Cache:
    """By path the sha256 and the stamp of each file of a directory, kept from scan to scan.

    Lines of text, because splitting 10,000 of them is faster than anything that parses. The cache
    is only ever a help: one that cannot be read or written is as good as none.
    """

    def __init__(self, root: str, home: str | None) -> None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        self._path = os.path.join(home, "cache", "files", name) if home else ""
        self.known = self._load()

    def save(self, cacheable: Mapping[str, str]) -> None:
        if not self._path or cacheable == self.known:
            return
        lines = [f"{path}\t{known}" for path, known in cacheable.items() if path.isprintable()]
        write_cache(self._path, "\n".join((_CACHE_HEADER, *lines)))

    def _load(self) -> dict[str, str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                header, *lines = file.read().split("\n")
            if header != _CACHE_HEADER:
                return {}
            return dict([line.split("\t") for line in lines])
        except (OSError, ValueError):
            return {}
