"""Python environments of --requirements, by a real agent, real venv and pip, and wheels made here.

No test but the last reaches the network: the requirements name a folder with the wheels.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.sandbox import isolation
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import World

pytestmark = pytest.mark.slow

PYTHON = Path(sys.executable).resolve()
ENV = {"PATH": f"{PYTHON.parent}:/usr/bin:/bin", "PIP_NO_CACHE_DIR": "1"}
ALICE = 3_000_000 + 10 * os.getpid()
#: An install is slow on a busy machine.
PATIENCE = 120.0


def a_wheel(folder: Path, name: str = "paddlesays", version: str = "1.0") -> Path:
    """A wheel with one module, and a script that tells where it runs."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"import sys\ndef main():\n    print('{name} {version} in', sys.prefix)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    rows = [f"{path},{_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for path, text in files.items():
            out.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def requirements(folder: Path, *lines: str) -> str:
    return "\n".join(["--no-index", f"--find-links {folder}", *lines, ""])


def order(world: World, text: str, command: str = "paddlesays", **run: Any) -> str:
    return world.run(command, env=ENV, requirements=text, **run)


def ended(world: World, replica: str) -> dict[str, Any]:
    world.server.wait(lambda: world.stored(replica).over, PATIENCE)
    return world.stored(replica).exited or {}


def installers(world: World) -> list[int]:
    """The processes that make environments for this world, and what they started."""
    tops = [pid for pid in processes.pids() if _is_installer(pid, str(world.directory))]
    return [pid for pid in tops if processes.alive(pid)]


def _is_installer(pid: int, directory: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        return f"{directory}/cache/envs/" in command
    except OSError:
        return False


def test_it_is_made_once_and_shared_and_others_do_not_wait(world: World, tmp_path: Path) -> None:
    a_wheel(tmp_path / "wheels")
    text = requirements(tmp_path / "wheels", "paddlesays")
    first = order(world, text, "paddlesays; python -c 'import paddlesays'; echo $VIRTUAL_ENV")
    second = order(world, text)
    beside = world.run("echo beside")
    assert world.ended(beside)["exit_code"] == 0
    assert not world.stored(first).over
    # Its log says what it waits for while it waits.
    world.says(first, "[paddlecloud] Python environment of --requirements: ")
    assert [ended(world, one)["exit_code"] for one in (first, second)] == [0, 0]
    said = world.text(first).splitlines()
    home = said[-1]
    assert f"paddlesays 1.0 in {home}" in said
    assert any(re.fullmatch(r"\[paddlecloud\] 软件包已安装，用时 [\d.]+ 秒", s) for s in said)
    assert any(re.fullmatch(r"\[paddlecloud\] packages installed in [\d.]+ s", s) for s in said)
    assert f"paddlesays 1.0 in {home}" in world.text(second)
    assert world.agent_log().count(" installed in ") == 1
    third = order(world, text)
    assert ended(world, third)["exit_code"] == 0
    assert "installed in" not in world.text(third)
    assert world.agent_log().count(" installed in ") == 1
    folder = Path(home).parent
    left = sorted(path.name for path in folder.iterdir())
    key = Path(home).name.split(".")[0]
    assert left == sorted([f"{key}.json", f"{key}.lock", Path(home).name])


def test_a_wrong_requirement_is_told_with_the_last_lines(world: World, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    replica = order(world, requirements(tmp_path / "wheels", "nosuchthing==9.9"))
    end = ended(world, replica)
    assert end["cause"] == "start_failed"
    assert "No matching distribution found for nosuchthing==9.9" in end["message"]
    log = world.text(replica)
    assert "[paddlecloud] cannot install the packages; output of the installer:\n" in log
    assert "[paddlecloud] 软件包安装失败，安装程序的输出：\n" in log
    assert log.endswith("ERROR: No matching distribution found for nosuchthing==9.9\n")
    assert end["hint"] == "no_environment"
    assert installers(world) == []
    left = [path.name for path in (world.directory / "cache" / "envs" / "own").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


def test_an_agent_killed_in_the_middle_leaves_nothing_half_made(
    world: World, tmp_path: Path
) -> None:
    a_wheel(tmp_path / "wheels")
    replica = order(world, requirements(tmp_path / "wheels", "paddlesays"))
    own = world.directory / "cache" / "envs" / "own"
    eventually(lambda: own.is_dir() and any(own.glob("*/pyvenv.cfg")), PATIENCE)
    world.kill_agent()
    assert list(own.glob("*.json")) == []
    assert installers(world) != []
    world.start_agent()
    end = ended(world, replica)
    assert end["exit_code"] == 0, end["message"]
    # What the first agent began was brought to its end, and nothing was made twice.
    assert len([path for path in own.iterdir() if path.is_dir()]) == 1
    assert "paddlesays 1.0" in world.text(replica)
    assert world.text(replica).count("[paddlecloud] Python environment") == 1


def test_a_kill_ends_the_installer_first(world: World, tmp_path: Path) -> None:
    a_wheel(tmp_path / "wheels")
    replica = order(world, requirements(tmp_path / "wheels", "paddlesays"))
    eventually(lambda: installers(world), PATIENCE)
    world.server.order(replica, "stop")
    end = ended(world, replica)
    assert end["cause"] == "stopped"
    assert installers(world) == []
    own = world.directory / "cache" / "envs" / "own"
    assert [path.name for path in own.iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.skipif(
    sys.platform != "linux" or not isolation.possible() or not Path("/usr/bin/python3").exists(),
    reason="needs the rights of root, and a Python that every user may start",
)
def test_a_user_of_its_own_has_its_own(world: World) -> None:
    wheels = Path(f"/usr/local/share/paddlecloud-test-{os.getpid()}")
    wheel = a_wheel(wheels)
    try:
        command = (
            "paddlesays; touch $VIRTUAL_ENV/mine 2>&- || echo read-only;"
            " echo mine > /train.list && cat /train.list /trainer_id; id -u"
        )
        text = requirements(wheels, "paddlesays")
        env = {"PATH": "/usr/bin:/bin"}
        replica = world.run(command, env=env, requirements=text, uid=ALICE, private_root=True)
        end = ended(world, replica)
    finally:
        wheel.unlink()
        wheels.rmdir()
    said = world.text(replica)
    assert end.get("exit_code") == 0, said
    assert f"paddlesays 1.0 in {world.directory}/cache/envs/{ALICE}/" in said
    assert said.splitlines()[-4:] == ["read-only", "mine", "0", str(ALICE)]
    folder = world.directory / "cache" / "envs" / str(ALICE)
    made = next(path for path in folder.iterdir() if path.is_dir())
    assert made.stat().st_uid == ALICE


def test_a_package_of_the_index(world: World) -> None:
    """With the pip settings of the user who runs the tests."""
    command = "python -c 'import six; print(six.__version__)'"
    replica = order(world, "six==1.16.0\n", command)
    end = ended(world, replica)
    if "could not be fetched" in end.get("message", ""):
        pytest.skip("no package index can be reached")
    assert end["exit_code"] == 0, world.text(replica)
    assert world.text(replica).splitlines()[-1] == "1.16.0"
