"""Real replicas that may not create user namespaces try to, by every system call that can."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.replica.records import ExitRecord
from paddlecloud.agent.sandbox import seccomp
from tests.integration.agent import test_exec_runner
from tests.integration.agent.replicas import Bench, eventually
from tests.integration.agent.test_isolation import ALICE, able, run

PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
needs_filter = pytest.mark.skipif(
    sys.platform != "linux" or not seccomp.is_known() or PYTHON is None,
    reason="needs a machine whose system calls are known, and its Python",
)
EPERM, ENOSYS = 1, 38

# Each try in a child: one that works changes the process, and one that the kernel does not know at
# all (system calls of 32 bit) may end it.
PROBE = r"""
import ctypes, errno, json, mmap, os, platform, signal
NEWUSER = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
UNSHARE, CLONE = (272, 56) if X86 else (97, 220)

def syscall(number, *args):
    done = libc.syscall(*(ctypes.c_long(one) for one in (number, *args)))
    if done == 0 and number & 0xFFFF in (CLONE, 435):
        os._exit(0)
    return 0 if done >= 0 else ctypes.get_errno()

def unshare_of_32_bit():
    # mov $310,%eax; mov $NEWUSER,%ebx; int $0x80; ret
    code = b"\x53\xb8\x36\x01\0\0\xbb\0\0\0\x10\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return max(0, -call())

def clone3():
    args = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, signal.SIGCHLD)
    return syscall(435, ctypes.addressof(args), 88)

def tried(attempt):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(attempt()).encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 20)
    os.waitpid(pid, 0)
    return int(said) if said else None

found = {
    "unshare": tried(lambda: syscall(UNSHARE, NEWUSER)),
    "unshare with more": tried(lambda: syscall(UNSHARE, NEWUSER | 0x20000)),
    "clone": tried(lambda: syscall(CLONE, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)),
    "clone3": tried(clone3),
    "other unshare": tried(lambda: syscall(UNSHARE, 0x400)),
}
if X86:
    found["unshare of x32"] = tried(lambda: syscall(0x40000000 | UNSHARE, NEWUSER))
    found["unshare of 32 bit"] = tried(unshare_of_32_bit)
print(json.dumps(found))
"""

ORDINARY = r"""
import multiprocessing, os, subprocess, threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

def double(number):
    return 2 * number

if __name__ == "__main__":
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(double, range(100))) == list(range(0, 200, 2))
    assert subprocess.run(["sh", "-c", "echo a | cat"], capture_output=True).stdout == b"a\n"
    assert os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0
    for how in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(how)
        with ProcessPoolExecutor(2, mp_context=context) as processes:
            assert list(processes.map(double, range(10))) == list(range(0, 20, 2))
        queue = context.Queue()
        worker = context.Process(target=queue.put, args=("from a worker",))
        worker.start()
        assert queue.get(timeout=60) == "from a worker"
        worker.join()
        assert worker.exitcode == 0
    print("all well")
"""


def run_script(bench: Bench, script: str, **changes: object) -> tuple[str, ExitRecord]:
    env = {"PATH": os.environ["PATH"], "SCRIPT": script}
    command = f'printf %s "$SCRIPT" > script.py; {PYTHON} script.py'
    return run(bench, command, ALICE, env=env, **changes)


@able
@needs_filter
def test_a_replica_creates_no_user_namespace_unless_it_may(bench: Bench) -> None:
    text, end = run_script(bench, PROBE)
    if json.loads(text)["unshare"] != 0:
        pytest.skip("this machine gives no user namespace to plain users")
    assert "user_namespaces" not in end["enforced"]
    text, end = run_script(bench, PROBE, user_namespaces=False)
    found = json.loads(text)
    assert found.pop("clone3") == ENOSYS
    assert found.pop("other unshare") == 0
    assert found.pop("unshare of 32 bit", EPERM) in (EPERM, None), "None: no such calls here"
    assert set(found.values()) == {EPERM}
    assert end["enforced"]["user_namespaces"] is True


@able
@needs_filter
def test_a_replica_of_the_agents_own_user_is_held_to_it_too(bench: Bench) -> None:
    root, end = bench.run("unshare -U true; echo $?", user_namespaces=False)
    assert (root / "stdout.log").read_text().endswith("Operation not permitted\n1\n")
    assert end["enforced"]["user_namespaces"] is True


@able
@needs_filter
def test_threads_and_processes_work_as_ever(bench: Bench) -> None:
    text, end = run_script(bench, ORDINARY, user_namespaces=False)
    assert (text, end["exit_code"]) == ("all well\n", 0)


@able
@needs_filter
def test_a_root_of_its_own_is_made_before(bench: Bench) -> None:
    command = "echo mine > /mark && cat /mark; unshare -U true || echo refused; sleep 600"
    root = test_exec_runner.start(bench, command, private_root=True, user_namespaces=False)
    log = root / "stdout.log"
    eventually(lambda: log.read_text().endswith("refused\n"))
    assert log.read_text().startswith("mine\n")
    test_exec_runner.stop(root)


@able
@needs_filter
@pytest.mark.parametrize("allowed", [False, True])
def test_a_command_beside_it_is_held_to_the_same(
    bench: Bench, tmp_path: Path, allowed: bool
) -> None:
    root = test_exec_runner.start(bench, "sleep 600", user_namespaces=allowed)
    text, end = test_exec_runner.run(
        bench, tmp_path / "command", root, "unshare -U echo created 2>&1"
    )
    if allowed and end["exit_code"]:
        pytest.skip("this machine gives no user namespace to plain users")
    assert ("created" in text) is allowed, text
    test_exec_runner.stop(root)
