"""Forbids a process and its children to create user namespaces, by a seccomp filter.

In a user namespace any user is root of what it creates there, which opens large parts of the kernel
to programs that could not reach them otherwise. The filter answers `unshare` and `clone` with EPERM
if they request one. `clone3` passes its flags in memory, which a filter cannot read: it is answered
with ENOSYS, as by an older kernel, and the C library then uses `clone`.

Installed in the forked child right before exec, after its own namespaces are made (see `rootfs`).
It needs a kernel with seccomp filters (Linux 4.17) and an architecture whose numbers are below.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from paddlecloud.agent.sandbox._mounts import CLONE_NEWUSER, check, libc

_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CLONE3 = 435
"""The same number everywhere."""
# For each kind of system calls that a machine knows: audit name, unshare, clone.
_CALLS = {
    "x86_64": ((0xC000_003E, 272, 56), (0x4000_0003, 310, 120)),
    "aarch64": ((0xC000_00B7, 97, 220), (0x4000_0028, 337, 120)),
}
_NOT_X32 = 0xBFFF_FFFF
"""Clears the bit by which x86-64 marks the calls of x32, which have the same numbers otherwise."""
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_SPEC_ALLOW = 4
"""Without it some kernels switch on costly protections of the CPU for the filtered process."""

_LOAD, _AND, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_known() -> bool:
    """Whether the numbers of this machine's system calls are known here."""
    return os.uname().machine in _CALLS


def forbid_user_namespaces() -> bool:
    """Install the filter for the calling process and its children; False where the kernel or the
    architecture does not support it."""
    machine = os.uname().machine
    if machine not in _CALLS:
        return False
    text = b"".join(_block(*calls) for calls in _CALLS[machine]) + _return(errno.ENOSYS)
    program = _Program(len(text) // 8, text)
    try:
        check(libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0))
        done = libc.syscall(
            ctypes.c_long(_SYS_SECCOMP[machine]),
            ctypes.c_long(_SET_MODE_FILTER),
            ctypes.c_long(_SPEC_ALLOW),
            ctypes.byref(program),
        )
        check(done)
    except OSError:
        return False
    return True


def _block(arch: int, unshare: int, clone: int) -> bytes:
    """The instructions for one kind of system calls; other kinds continue behind it."""
    return b"".join(
        (
            _step(_LOAD, _ARCH),
            _step(_EQUAL, arch, no=11),
            _step(_LOAD, _NUMBER),
            _step(_AND, _NOT_X32),
            _step(_EQUAL, _CLONE3, yes=7),
            _step(_EQUAL, unshare, yes=2),
            _step(_EQUAL, clone, yes=1),
            _return(0),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_ANY_BIT, CLONE_NEWUSER, no=1),
            _return(errno.EPERM),
            _return(0),
            _return(errno.ENOSYS),
        )
    )


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are how many of the following are skipped."""
    return struct.pack("=HBBI", code, yes, no, value)


def _return(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error if error else _ALLOW)
