"""The scripts that put the project on a machine, run for real in an empty home directory.

Installing asks the package registry, so those tests are slow ones; finding a Python is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.client.config.resolve import resolve
from tests.contract.disk import small_disk

TOP = Path(__file__).resolve().parents[2]
SCRIPTS = TOP / "scripts"


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


def a_python(directory: Path, name: str, *, version: str, usable: bool = True) -> Path:
    """A stand-in that answers as a Python of that version would; unusable: it has no venv."""
    new_enough = usable and version.startswith(("3.11", "3.12", "3.13"))
    program = directory / name
    program.write_text(
        "#!/bin/sh\n"
        f"case $2 in *ensurepip*) exit {0 if new_enough else 1} ;; esac\n"
        f"echo {version}\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only directory on PATH beside sh itself."""
    directory = tmp_path / "programs"
    directory.mkdir()
    return directory


def find(programs: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return run("/bin/sh", SCRIPTS / "find-python.sh", PATH=str(programs), **environ)


def test_an_old_python3_is_passed_over_for_a_newer_name(programs: Path) -> None:
    a_python(programs, "python3", version="3.9.2")
    newer = a_python(programs, "python3.12", version="3.12.1")
    assert find(programs).stdout.strip() == str(newer)


def test_a_python_without_venv_is_passed_over(programs: Path) -> None:
    a_python(programs, "python3", version="3.13.0", usable=False)
    whole = a_python(programs, "python3.11", version="3.11.7")
    assert find(programs).stdout.strip() == str(whole)


def test_the_named_python_is_the_only_one_tried(programs: Path) -> None:
    a_python(programs, "python3", version="3.12.1")
    named = a_python(programs, "mine", version="3.8.1")
    found = find(programs, PYTHON=str(named))
    assert (found.returncode, found.stdout) == (1, "")
    assert f"{named} is 3.8.1" in found.stderr


def test_no_python_is_told_in_one_line(programs: Path) -> None:
    a_python(programs, "python3", version="3.9.2")
    found = find(programs)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.count("\n") == 1
    assert "needs Python 3.11 or newer" in found.stderr
    assert "python3 is 3.9.2" in found.stderr


def test_wrong_use_of_the_installer_changes_nothing(tmp_path: Path) -> None:
    unknown = run("sh", SCRIPTS / "install.sh", "--client", HOME=str(tmp_path))
    absent = run("sh", SCRIPTS / "install.sh", "no-such.whl", HOME=str(tmp_path))
    assert (unknown.returncode, absent.returncode) == (2, 1)
    assert "unknown option --client" in unknown.stderr
    assert "no-such.whl does not exist" in absent.stderr
    assert list(tmp_path.iterdir()) == []


def a_demo(
    directory: Path, *, code: int, running: bool = False
) -> subprocess.CompletedProcess[str]:
    """The demonstration with a command that records its calls and whose job ends with this code;
    `running`: there is a server before."""
    program = directory / "bin" / "paddlecloud"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\necho "$1" "$(expr "$2" : "\\([a-z]*\\)$")" >>asked\n'
        f'[ "$1 $2" != "server status" ] || exit {0 if running else 1}\n'
        '[ "$1" = submit_job ] || exit 0\n'
        f"echo job_id: job-1\nexit {code}\n"
    )
    program.chmod(0o755)
    (directory / "scripts").mkdir()
    shutil.copy(SCRIPTS / "demo.sh", directory / "scripts")
    return run("sh", directory / "scripts" / "demo.sh", TMPDIR=str(directory))


@pytest.mark.parametrize("code", [0, 1])
def test_the_demonstration_fails_if_its_job_does(tmp_path: Path, code: int) -> None:
    done = a_demo(tmp_path, code=code)
    assert (done.returncode, done.stdout) == (code, "job_id: job-1\n")
    asked = [line.strip() for line in (tmp_path / "asked").read_text().splitlines()]
    after = ["query_job", "get_files"] * (code == 0)
    assert asked == ["server status", "submit_job", *after, "server stop"]
    assert {path.name for path in tmp_path.iterdir()} == {"asked", "bin", "scripts"}


def test_the_demonstration_leaves_a_server_that_was_running_before(tmp_path: Path) -> None:
    done = a_demo(tmp_path, code=0, running=True)
    assert done.returncode == 0
    assert "stop" not in (tmp_path / "asked").read_text()
    assert done.stderr.endswith("this stops it: bin/paddlecloud server stop\n")


def test_what_goes_on_path_is_the_command_alone() -> None:
    assert [path.name for path in (TOP / "bin").iterdir()] == ["paddlecloud"]
    assert (TOP / "bin" / "paddlecloud").readlink() == Path("../.venv/bin/paddlecloud")


def shell_lines(home: Path, action: str) -> subprocess.CompletedProcess[str]:
    """Only the part of the installer that changes the files of a shell."""
    parts = (SCRIPTS / "install.sh").read_text().removesuffix('main "$@"\n')
    program = f'{parts}\n{action} "$HOME/.bashrc"\n'
    return run("sh", "-c", program, HOME=str(home))


def test_a_shell_s_file_keeps_its_mode_its_link_and_its_lines(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles"
    real.write_text("alias ll='ls -l'")
    real.chmod(0o640)
    (tmp_path / ".bashrc").symlink_to("dotfiles")
    assert shell_lines(tmp_path, "add_to_path").returncode == 0
    assert real.read_text().count("paddlecloud:$PATH") == 1
    assert shell_lines(tmp_path, "remove_from_path").returncode == 0
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("alias ll='ls -l'\n", 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bashrc", "dotfiles"]
    assert (tmp_path / ".bashrc").is_symlink()


def test_half_of_our_lines_is_not_cut_at(tmp_path: Path) -> None:
    lines = "# >>> paddlecloud >>>\nalias ll='ls -l'\n"
    (tmp_path / ".bashrc").write_text(lines)
    assert shell_lines(tmp_path, "remove_from_path").returncode == 0
    assert (tmp_path / ".bashrc").read_text() == lines


@pytest.mark.parametrize("action", ["add_to_path", "remove_from_path"])
def test_a_full_disk_costs_nobody_their_settings(tmp_path: Path, action: str) -> None:
    begin, end = "# >>> paddlecloud >>>", "# <<< paddlecloud <<<"
    ours = f"{begin}\nexport PATH\n{end}\n" if action == "remove_from_path" else ""
    # The last page has room for a part of our lines and not for all of them.
    lines = ours + "#" * (2 * 4096 - 31 - len(ours)) + "\n"
    with small_disk(tmp_path / "home", size="64k") as home:
        (home / ".bashrc").write_text(lines)
        with contextlib.suppress(OSError):
            (home / "filler").write_bytes(bytes(65536))
        done = shell_lines(home, action)
        assert done.returncode == 1
        assert "is left as it was; make room" in done.stderr
        assert (home / ".bashrc").read_text() == lines
        (home / "filler").unlink()
        assert shell_lines(home, action).returncode == 0
        assert sorted(path.name for path in home.iterdir()) == [".bashrc"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_install_use_upgrade_and_uninstall(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    (home / ".bashrc").write_text("alias ll='ls -l'")
    (home / ".zshrc").write_text("")
    target = home / "bin" / "paddlecloud"
    conf = target / "conf" / "client.conf"

    install(home)
    assert sorted(path.name for path in target.iterdir()) == [
        "conf", "paddlecloud", "paddlecloud.bat", "venv",
    ]  # fmt: skip
    assert conf.stat().st_mode & 0o777 == 0o600
    assert resolve({}, {"HOME": str(home)}).embedded
    assert "usage" in in_a_new_shell(home, "paddlecloud --help").stdout.lower()
    assert megabytes(target / "venv") < 60

    conf.write_text("[main]\nuser_id = me\n")
    install(home)
    assert conf.read_text() == "[main]\nuser_id = me\n"
    assert (home / ".bashrc").read_text().count("bin/paddlecloud") == 1
    assert not list(target.glob("venv.*"))

    assert install(home, "--uninstall").stdout.startswith("removed")
    assert (home / ".bashrc").read_text() == "alias ll='ls -l'\n"
    assert (home / ".zshrc").read_text() == ""
    assert [path.name for path in target.iterdir()] == ["conf"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_client_alone_is_small_and_needs_no_package(tmp_path: Path) -> None:
    install(tmp_path, "--client-only")
    target = tmp_path / "bin" / "paddlecloud"
    packages = [
        path.parent for path in target.glob("venv/lib/python*/site-packages/*.dist-info/RECORD")
    ]
    assert sorted(path.name.split("-")[0] for path in packages) == ["paddlecloud"]
    assert megabytes(target / "venv") < 10
    assert "usage" in in_a_new_shell(tmp_path, "paddlecloud --help").stdout.lower()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_failed_upgrade_leaves_the_command_that_was_there(tmp_path: Path) -> None:
    install(tmp_path, "--client-only")
    broken = tmp_path / "broken.whl"
    broken.write_text("not a wheel")
    failed = run("sh", SCRIPTS / "install.sh", "--client-only", broken, HOME=str(tmp_path))
    assert failed.returncode != 0
    assert "usage" in in_a_new_shell(tmp_path, "paddlecloud --help").stdout.lower()


def install(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = run("sh", SCRIPTS / "install.sh", *arguments, HOME=str(home), PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    return done


def in_a_new_shell(home: Path, command: str) -> subprocess.CompletedProcess[str]:
    """As a person types it, from a directory whose files would shadow the standard library."""
    trap = home / "training"
    trap.mkdir(exist_ok=True)
    (trap / "socket.py").write_text("raise SystemExit('the wrong socket.py')")
    done = run(
        "sh", "-c", f". {str(home / '.bashrc')!r}; cd {str(trap)!r}; {command}", HOME=str(home)
    )
    assert done.returncode == 0, done.stderr
    return done


def megabytes(directory: Path) -> float:
    return sum(p.stat().st_size for p in directory.rglob("*") if not p.is_symlink()) / 1e6
