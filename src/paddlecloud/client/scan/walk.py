"""Walks a directory and builds its snapshot: rows, digests, and what was left out.

The rows are those of `model.files.snapshot`. Files that the hash cache knows to be unchanged are
not read. No server is called, and neither dataclasses, typing nor pathlib is imported: every submit
pays for what this module loads.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH100, PTH110, PTH112, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import hashlib
import os
import stat
from errno import EACCES
from json import dumps

from paddlecloud.client.file_names import CUT_DOWNLOAD, check_name, is_plain, shown, why_not
from paddlecloud.client.scan import _notices as notices
from paddlecloud.client.scan._notices import DEFAULT, KEYS
from paddlecloud.client.scan._secrets import (
    CLIENT_CONF,
    config_has_keys,
    holds_keys,
    is_home,
    names_in,
)
from paddlecloud.client.scan.hash_cache import Digests
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError
from paddlecloud.model.files.path_rules import link_meaning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from io import FileIO

    from paddlecloud.client.scan._ignore import Rules
    from paddlecloud.client.scan._notices import Note, Row
    from paddlecloud.client.scan.hash_cache import Known
    from paddlecloud.client.upload.local_handoff import LocalHandoff

    Source = tuple[str, int, str]
    """The file that holds some content: absolute path, size, and its stamp when it was read."""

BLOCK = 1024 * 1024
#: From this size on a file goes by itself, in parts or as a whole.
BIG = 16 * BLOCK
#: Before so much is read, and before anything is copied, `before_much` is called.
MUCH = BIG
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
_CHECKED_NAMES = NEVER | {CLIENT_CONF}
_READ = 256 * 1024
_RACY_SECONDS = 2
"""A file changed so shortly before may change again without a new time stamp: do not cache it."""
_WORTH_FILES, _WORTH_BYTES = 200, 8 * BLOCK
"""Below both, hashing everything again is as fast as reading a cache."""
_UNKNOWN = ("", "")
_REFUSALS = frozenset(
    (
        *("files_link_name", "files_link_outside", "files_link_whole", "files_name"),
        "files_unreadable",
    )
)


class Scan:
    """What a directory holds."""

    __slots__ = (
        *("bytes", "canonical", "directory", "entries", "id", "notes", "read", "root"),
        *("skipped", "sources"),
    )

    def __init__(self, root: str, walk: _Walk) -> None:
        self.root = root
        name = os.path.basename(root) or "root"
        self.directory = name.encode("utf-8", "replace").decode()
        """Its own name, without what is above it; bytes that are no text as question marks."""
        self.entries: list[Row] = sorted(walk.rows)
        self.canonical = dumps(self.entries, ensure_ascii=True, separators=(",", ":"))
        """The rows as JSON, as they go to the server."""
        self.id = "sha256:" + hashlib.sha256(self.canonical.encode()).hexdigest()
        self.bytes = sum(row[2] for row in self.entries)
        self.sources = walk.sources
        """By sha256, a file with that content."""
        self.skipped: Mapping[str, list[str]] = walk.skipped
        """By rule what it left out."""
        self.read = walk.read
        """By path what is known of each file."""
        self.notes: list[Note] = [
            notices.files(self.entries, self.bytes, walk.skipped),
            *notices.left_out(walk.skipped),
            *notices.brought(walk.brought, self.entries),
            *notices.bare_links(walk.bare_links(), walk.is_barred),
            *notices.outside_links(walk.outside),
        ]
        """Notices for the user: codes of `messages` with their values."""

    def changed(self) -> list[str]:
        """The files that are no longer as they were when they were read."""
        changed = []
        for path, (_, then) in self.read.items():
            try:
                now = stamp(os.lstat(f"{self.root}/{path}"))
            except OSError:
                now = ""
            if now != then:
                changed.append(path)
        return changed


class ScanProgress:
    """Progress of a scan, which other threads may read: files so far, and bytes of them that were
    read or are in the cache."""

    __slots__ = ("bytes", "files")

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0

    def add(self, count: int) -> None:
        self.bytes += count


def scan(
    directory: str,
    *,
    now: float,
    home: str | None = None,
    outside_links: bool = False,
    handoff: LocalHandoff | None = None,
    scan_progress: ScanProgress | None = None,
    before_much: Callable[[], None] | None = None,
) -> Scan:
    """The rows, the id and the contents of a directory.

    `home` is PADDLECLOUD_HOME: it has the cache of digests, and is itself never submitted. Files
    newer than `now` (epoch seconds) are not cached. Links that lead out, names that not every
    system can hold and unreadable files are refused by name; with `outside_links` such links are
    kept, for a job on this machine. With `handoff` big files that have to be read are copied for
    the server at the same time. `scan_progress` is updated while files are read. `before_much` is
    called once if there is much to read, and what it raises ends the scan.
    """
    root = os.path.abspath(directory)
    if not os.path.lexists(root):
        raise Invalid("files_missing", path=shown(directory))
    if not os.path.exists(root):
        target = shown(os.readlink(root))
        raise Invalid("files_link_nowhere", path=shown(directory), target=target)
    if not os.path.isdir(root):
        raise Invalid("files_not_directory", path=shown(directory))
    cache = Digests(root, home)
    settled = int((now - _RACY_SECONDS) * 1e9)
    walk = _Walk(root, cache.known, settled, os.path.abspath(home) if home else "")
    walk.outside_links = outside_links
    walk.handoff = handoff
    walk.scan_progress = scan_progress or walk.scan_progress
    walk.before_much = before_much
    walk.run()
    found = Scan(root, walk)
    if len(walk.read) >= _WORTH_FILES or found.bytes > _WORTH_BYTES:
        cache.save(walk.cacheable, now)
    return found


def stamp(status: os.stat_result) -> str:
    """While this stays the same, so does the content."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def unreadable(path: str, error: OSError) -> PaddleCloudError:
    if isinstance(error, FileNotFoundError):
        return Conflict("files_changed", path=shown(path))
    return Invalid("files_unreadable", path=shown(path), reason=error.strerror or str(error))


class _Walk:
    """One pass over a directory."""

    def __init__(self, root: str, known: Mapping[str, Known], settled: int, home: str) -> None:
        self.root = root
        self.outside_links = False
        self.outside: dict[str, str] = {}
        """By path the target of each link that leads out and is kept."""
        self.handoff: LocalHandoff | None = None
        self.scan_progress = ScanProgress()
        self.before_much: Callable[[], None] | None = None
        self._to_read = 0
        self.rows: list[Row] = []
        self.sources: dict[str, Source] = {}
        self.read: dict[str, Known] = {}
        self.cacheable: dict[str, Known] = {}
        """Of those, what will not change unnoticed."""
        self.skipped: dict[str, list[str]] = {}
        """By rule what it left out."""
        self.refused: list[Invalid] = []
        """Names and links that cannot be submitted, and what cannot be read."""
        self._links: dict[str, str] = {}
        """By path what a link leads to, both from the root on."""
        self._resolver = LinkResolver(root)
        self._barred: dict[str, bool] = {}
        self.brought: list[str] = []
        """What git's rules would have left out, had not a file of ours made them void."""
        self._advised = OUR_IGNORE_FILE
        """Where a rule against an entry belongs: a new file of ours would make git's void."""
        self._known = known
        self._settled = settled
        """Files changed after this (nanoseconds of the epoch) may still be changing."""
        self._home = home
        self._home_inode = _inode(home)

    def run(self) -> None:
        """Top down, as git does: below a directory that is left out no rule brings back a file."""
        waiting: list[tuple[str, Rules | None, Rules | None]] = [("", None, None)]
        while waiting:
            above, rules, void = waiting.pop()
            entries = self._entries(above)
            names = {entry.name for entry in entries}
            if not above:
                is_ours = self._is_home(_inode(self.root), self.root)
                if is_ours or is_home(self.root, names):
                    raise Invalid("files_hold_keys", path=shown(self.root))
            rule = self._rule_for_holder(above, names)
            if rule:
                self.rows = [row for row in self.rows if row[0] != above[:-1]]
                self._skip(above, rule)
                continue
            rules = self._rules(above, names, rules)
            void = self._void(above, names, rules, void)
            self._advised = rules.where if rules is not None else OUR_IGNORE_FILE
            if rules is not None and void is not None:
                self._compare(above, entries, rules, void)
            for entry in entries:
                if self._take(above + entry.name, entry, rules):
                    waiting.append((f"{above}{entry.name}/", rules, void))
        if self.refused:
            raise notices.refusal(self.refused)
        self._shorten_links()

    def bare_links(self) -> dict[str, str]:
        """Those that lead to what was left out."""
        kept = {row[0] for row in self.rows} if self._links else ()
        return {
            path: meant
            for path, meant in self._links.items()
            if meant not in kept and os.path.lexists(self._absolute(meant))
        }

    def _shorten_links(self) -> None:
        """A link by way of another one that is left out leads straight to its end instead."""
        kept = {row[0] for row in self.rows} if self._links else ()
        for index, row in enumerate(self.rows if self._links else ()):
            path, *_, target = row
            end = self._links.get(path, "")
            if end in kept and end != self._by_kept_links(link_meaning(path, target)):
                self.rows[index] = (*row[:5], self._resolver.relative_to(path, end))

    def _by_kept_links(self, path: str) -> str:
        """Where a path leads in the job."""
        names = path.split("/")
        for count in range(1, len(names) + 1):
            step = "/".join(names[:count])
            if step in self._links:
                end, rest = self._links[step], names[count:]  # no link, nor behind one
                return self._by_kept_links("/".join((end, *rest))) if rest else end
        return path

    def is_barred(self, path: str) -> bool:
        """Whether a path, or a directory above it, is left out whatever ignore rules there are."""
        names = path.split("/")
        parts = ["/".join(names[:end]) for end in range(1, len(names) + 1)]
        for part in parts:
            if part not in self._barred:
                self._barred[part] = self._is_barred_itself(part)
        return any(self._barred[part] for part in parts)

    def _is_barred_itself(self, path: str) -> bool:
        absolute, name = self._absolute(path), os.path.basename(path)
        directory = os.path.isdir(absolute)
        if self._fixed_rule(name, absolute, _inode(absolute), directory):
            return True
        if directory:
            return bool(self._rule_for_holder(f"{path}/", names_in(absolute)))
        return not os.path.isfile(absolute)

    def _rule_for_holder(self, above: str, names: set[str]) -> str:
        """Why a directory is left out because of what is in it, also against ignore rules: `!*/`
        brings none of these back. Empty when it is not."""
        if not above:
            return ""
        if not SKIPPED_WITH.isdisjoint(names):
            return DEFAULT
        return KEYS if holds_keys(self._absolute(above), names) else ""

    def _entries(self, above: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._absolute(above)) as entries:
                return list(entries)
        except OSError as error:
            if not above:
                reason = error.strerror or str(error)
                raise Invalid("files_closed", path=shown(self.root), reason=reason) from None
            self._refuse(unreadable(above, error))
            return []

    def _refuse(self, error: PaddleCloudError) -> None:
        """Continue after an error that the user has to fix: they are reported together."""
        if not isinstance(error, Invalid) or error.code not in _REFUSALS:
            raise error
        self.refused.append(error)

    def _rules(self, above: str, names: set[str], rules: Rules | None) -> Rules | None:
        """The rules that hold in a directory: those from above, and its own before them."""
        wanted = [OUR_IGNORE_FILE, GITS_IGNORE_FILE]
        if rules is not None and rules.is_ours:
            wanted.remove(GITS_IGNORE_FILE)
        for name in wanted:
            if name in names:
                from paddlecloud.client.scan import _ignore  # noqa: PLC0415 - only where there is one

                found = _ignore.load(self.root, above, name, rules)
                if found is not None:
                    return found
        return rules

    def _void(
        self, above: str, names: set[str], rules: Rules | None, void: Rules | None
    ) -> Rules | None:
        """Git's rules that would hold in a directory if no file of ours did."""
        if rules is None or not rules.is_ours or GITS_IGNORE_FILE not in names:
            return void
        from paddlecloud.client.scan import _ignore  # noqa: PLC0415 - only where there is one

        return _ignore.undone(self.root, above, void)

    def _compare(
        self, above: str, entries: Iterable[os.DirEntry[str]], rules: Rules, void: Rules
    ) -> None:
        from paddlecloud.client.scan._ignore import is_brought  # noqa: PLC0415 - as above

        for entry in entries:
            path, directory = above + entry.name, entry.is_dir(follow_symlinks=False)
            if is_brought(rules, void, path, entry.name, directory):
                self.brought.append(path)

    def _take(self, path: str, entry: os.DirEntry[str], rules: Rules | None) -> bool:
        """Keep one entry, or not; whether to go on below it."""
        directory = entry.is_dir(follow_symlinks=False)
        if directory or rules is not None or entry.name in _CHECKED_NAMES:
            rule = self._rule_against(path, entry, directory, rules)
            if rule:
                self._skip(f"{path}/" if directory else path, rule)
                return False
        try:
            self._keep(path, entry, directory)
        except Invalid as error:
            self._refuse(error)
        return directory

    def _keep(self, path: str, entry: os.DirEntry[str], directory: bool) -> None:
        if not is_plain(path):
            check_name(path)
        if entry.is_file(follow_symlinks=False):
            if not self.refused:
                self._file(path, entry)
            elif not os.access(entry.path, os.R_OK):  # its digest is not needed any more
                raise unreadable(path, PermissionError(EACCES, os.strerror(EACCES)))
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
        if fixed := self._fixed_rule(name, entry.path, entry.inode(), directory):
            return fixed
        verdict = rules.verdict(path, name, directory) if rules is not None else None
        if verdict is not None:
            return verdict
        is_part = name[0] == "." and name.endswith(CUT_DOWNLOAD)
        return DEFAULT if directory and (is_part or name in SKIPPED_NAMES) else ""

    def _fixed_rule(self, name: str, absolute: str, inode: int | None, directory: bool) -> str:
        """Why an entry is left out because of its name or its keys, also against ignore rules."""
        if name in NEVER or (directory and self._is_home(inode, absolute)):
            return DEFAULT
        return KEYS if name == CLIENT_CONF and not directory and config_has_keys(absolute) else ""

    def _is_home(self, inode: int | None, path: str) -> bool:
        """Whether a path is PADDLECLOUD_HOME, by inode first, which costs nothing."""
        is_like = inode is not None and inode == self._home_inode
        return is_like and os.path.samefile(path, self._home)  # noqa: PTH121 - see the top

    def _skip(self, path: str, rule: str) -> None:
        self.skipped.setdefault(rule, []).append(path)

    def _file(self, path: str, entry: os.DirEntry[str]) -> None:
        try:
            status = _status(entry)
        except OSError as error:
            raise unreadable(path, error) from None
        known = self._known.get(path, _UNKNOWN)
        self.scan_progress.files += 1
        if known[1] == stamp(status):
            self.scan_progress.bytes += status.st_size
        else:
            self._to_read += status.st_size
            if self._to_read >= MUCH and self.before_much is not None:
                before_much, self.before_much = self.before_much, None
                before_much()
            status, known = _digest(entry.path, path, self.handoff, self.scan_progress)
        sha256, read_at = known
        size = status.st_size
        executable = 1 if status.st_mode & stat.S_IXUSR else 0
        self.rows.append((path, "file", size, sha256, executable, ""))
        self.sources.setdefault(sha256, (entry.path, size, read_at))
        self.read[path] = known
        if status.st_mtime_ns < self._settled and status.st_ctime_ns < self._settled:
            self.cacheable[path] = known

    def _link(self, path: str) -> None:
        try:
            target = os.readlink(self._absolute(path))
        except OSError as error:
            raise unreadable(path, error) from None
        end = self._resolver.end(path, target)
        if end == "":
            raise Invalid("files_link_whole", **self._named(path))
        named = {**self._named(path), "target": shown(target)}
        if end is None and not self.outside_links:
            raise Invalid("files_link_outside", **named)
        if end is None:
            kept = self._resolver.outside(path, target)
            reason = why_not(kept[1:])
            self.outside[path] = kept
        else:
            kept = self._resolver.relative(path, target, end)
            reason = why_not(link_meaning(path, kept))
            self._links[path] = end
        if reason:
            raise Invalid("files_link_name", **named, reason=reason)
        self.rows.append((path, "link", 0, "", 0, kept))

    def _named(self, path: str) -> dict[str, str]:
        """A link that is refused, and where a rule against it belongs."""
        return {"path": shown(path), "rules": shown(self._advised)}

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino if path else None  # noqa: PTH116 - as the others, see the top
    except OSError:
        return None


def _status(entry: os.DirEntry[str], *, windows: bool = os.name == "nt") -> os.stat_result:
    """The status of a directory entry. On Windows that has no inode, which is part of a stamp."""
    return os.lstat(entry.path) if windows else entry.stat(follow_symlinks=False)


def _digest(
    absolute: str, path: str, handoff: LocalHandoff | None, scan_progress: ScanProgress
) -> tuple[os.stat_result, Known]:
    """Read a file; Conflict if it changes while it is read."""
    try:
        with open(absolute, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            sha256 = ""
            if status.st_size <= _READ:
                data = file.read()
                scan_progress.add(len(data))
                sha256 = hashlib.sha256(data).hexdigest()
            elif handoff is not None and status.st_size >= BIG:
                before = scan_progress.bytes
                sha256 = handoff.read(file.fileno(), status, scan_progress.add)
                if not sha256:  # the file is read again
                    scan_progress.bytes = before
            sha256 = sha256 or _sha256_of(file, scan_progress)
            after = stamp(os.fstat(file.fileno()))
    except OSError as error:
        raise unreadable(path, error) from None
    if after != stamp(status):
        raise Conflict("files_changed", path=shown(path))
    return status, (sha256, after)


def _sha256_of(file: FileIO, scan_progress: ScanProgress) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ))
    file.seek(0)
    while count := file.readinto(buffer):
        digest.update(buffer[:count])
        scan_progress.add(count)
    return digest.hexdigest()


class LinkResolver:
    """Resolves the links of one directory; each real path is looked up once."""

    def __init__(self, root: str) -> None:
        self._real = os.path.realpath(root)
        self._inside = os.path.join(self._real, "")
        self._roots = (os.path.join(root, ""), self._inside)
        self._places: dict[str, str] = {}

    def end(self, path: str, target: str) -> str | None:
        """Where a link leads in the end, relative to the root: empty for the root itself, None for
        a path outside. No directory above a link is a link itself: the walk follows none."""
        above, name = os.path.split(os.path.join(self._inside, os.path.dirname(path), target))
        if above not in self._places:
            self._places[above] = os.path.realpath(above)
        end = os.path.join(self._places[above], name)
        if name in ("", ".", "..") or os.path.islink(end):
            end = os.path.realpath(end)
        if end == self._real:
            return ""
        inside = end.startswith(self._inside)
        return end.removeprefix(self._inside).replace(os.sep, "/") if inside else None

    def outside(self, path: str, target: str) -> str:
        """The absolute path of a link that leads out: as written if that is absolute and goes
        nowhere up, so that the link follows what is changed there."""
        if target.startswith("/") and ".." not in target.split("/"):
            return os.path.abspath(target)
        return os.path.realpath(os.path.join(self._inside, os.path.dirname(path), target))

    def relative(self, path: str, target: str, end: str) -> str:
        """The target of a link; as written if that is valid in a copy of the directory, too."""
        kept = target.replace(os.sep, "/")
        for root in self._roots:
            if target.startswith(root):
                kept = self.relative_to(path, target[len(root) :])
                break
        meant = link_meaning(path, kept)
        # After a link `..` goes up from its target: maybe out of the root, and in again.
        holds = meant == end or (meant and ".." not in target.lstrip("./"))
        return kept if holds else self.relative_to(path, end)

    def relative_to(self, path: str, inner: str) -> str:
        """The relative path from the directory of a link to a path below the root."""
        above = os.path.join(self._inside, os.path.dirname(path))
        return os.path.relpath(self._inside + inner, above).replace(os.sep, "/")
