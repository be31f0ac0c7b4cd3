"""Gives a replica a root directory of its own, in which it may create files.

Programs of 2017 read /trainer_id and write /train.list, every rank its own. So a replica's `/` is a
directory of the replica, in which each directory of the machine's root is mounted in its place. It
is no overlay of the whole machine: what a job writes below /home or /data would then vanish with
it, or not, depending on the partitions of that machine.

All of this happens in the forked child between fork and exec. Root needs permission to mount; other
users take a user namespace in which they keep their uid. Where neither is allowed `enter` raises
and changes nothing; the paths in the environment (see `replica/start`) lead to the same files.
`exec` commands enter the namespaces of the replica instead. Users other than root enter the same
directory twice: in a child that tries it, and then for good.
"""

from __future__ import annotations

import errno
import os
import stat

from paddlecloud.agent.sandbox import _mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Files of the machine's root up to this size become the replica's own, as copies.
_COPIED_BYTES = 64 * 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


def enter(place: str) -> None:
    """Make the directory `place` the root of the calling process. Raises OSError.

    `place` is below the machine's root and may contain files already, which are in `/` then.
    """
    if os.geteuid() != 0:
        _try_in_a_child(place)
    _enter(place)


def mount_order(place: str, names: Iterable[str]) -> list[str]:
    """The names in the machine's root, the one above `place` before all others.

    That one contains `place`, and everything that is mounted there by then would appear twice.
    """
    top = place.strip("/").split("/", 1)[0]
    return sorted(names, key=lambda name: (name != top, name))


def _try_in_a_child(place: str) -> None:
    """A process cannot leave a user namespace that turns out not to help."""
    pid = os.fork()
    if pid == 0:
        failed = errno.EPERM
        try:
            _enter(place)
            failed = 0
        except OSError as error:
            failed = error.errno or errno.EPERM
        finally:
            os._exit(failed)
    failed = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if failed:
        number = failed if failed > 0 else errno.EPERM
        raise OSError(number, os.strerror(number), place)


def _enter(place: str) -> None:
    if os.geteuid() == 0:
        _mounts.unshare(_mounts.CLONE_NEWNS)
    else:
        unshare_as_user()
    _mounts.mount(place, place, None, _mounts.MS_BIND)
    for name in mount_order(place, os.listdir("/")):  # noqa: PTH208 - see `isolation`
        _show(f"/{name}", f"{place}/{name}")
    _mounts.pivot(place)


def unshare_as_user() -> None:
    """Enter a user namespace with the same uid, and in it a mount namespace."""
    uid, gid = os.geteuid(), os.getegid()
    _mounts.check(_mounts.libc.unshare(_mounts.CLONE_NEWUSER))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _mounts.unshare(_mounts.CLONE_NEWNS)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _show(source: str, target: str) -> None:
    """Show an entry of the machine's root at `target`."""
    if os.path.islink(source):  # noqa: PTH114 - every start of a gang comes through here
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)  # noqa: PTH115, PTH211 - as above
    elif os.path.isdir(source):  # noqa: PTH112 - as above
        if not os.path.isdir(target):  # noqa: PTH112 - as above
            os.mkdir(target, 0o755)  # noqa: PTH102 - as above
        _mounts.mount(source, target, None, _mounts.MS_BIND | _mounts.MS_REC)
    elif _is_free(target) and not _copy(source, target):
        _bind_file(source, target)


def _is_free(target: str) -> bool:
    """Whether nothing is there, or what `_bind_file` left there in the child that tried."""
    try:
        return os.lstat(target).st_mode == stat.S_IFREG
    except FileNotFoundError:
        return True


def _copy(source: str, target: str) -> bool:
    """Whether it is a small file that could be copied, with owner and mode."""
    try:
        reader = os.open(source, _READ)
    except OSError:
        return False
    try:
        found = os.fstat(reader)
        if found.st_size > _COPIED_BYTES or not stat.S_ISREG(found.st_mode):
            return False
        writer = os.open(target, _NEW, stat.S_IMODE(found.st_mode) or stat.S_IRUSR)
        try:
            os.write(writer, os.read(reader, _COPIED_BYTES))
            if os.geteuid() == 0:
                os.fchown(writer, found.st_uid, found.st_gid)
        finally:
            os.close(writer)
    finally:
        os.close(reader)
    return True


def _bind_file(source: str, target: str) -> None:
    """A file that is not copied is mounted read-only."""
    os.close(os.open(target, _NEW & ~os.O_EXCL, 0))
    _mounts.mount(source, target, None, _mounts.MS_BIND)
    _mounts.set_attributes(target, on=_mounts.ATTR_RDONLY)
