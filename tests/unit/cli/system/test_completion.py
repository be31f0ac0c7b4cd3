"""The completion scripts, bash's in a real bash; the others are checked for what they name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from paddlecloud.cli.main import main
from paddlecloud.cli.registry import load_all
from paddlecloud.cli.system import completion

TABLE = load_all()

# bash hands "=" over as a word of its own, as COMP_WORDBREAKS says.
ASK = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_paddlecloud
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offers(directory: Path, *words: str) -> list[str]:
    bash = shutil.which("bash")
    assert bash is not None, "bash is needed to test what is written for it"
    script = completion.bash(TABLE, "en") + ASK
    done = subprocess.run(
        [bash, "--norc", "-c", script, "bash", "paddlecloud", *words],
        cwd=directory, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["qu"], ["query_job", "quota"]),
        (["get_"], ["get_files"]),
        (["--v"], ["--version"]),
        (["server", ""], ["start", "run", "check", "stop", "status", "logs"]),
        (["server", "sta"], ["start", "status"]),
        (["config", ""], ["show"]),
        (["admin", "to"], ["token"]),
        (["admin", "job", ""], ["list", "show", "kill"]),
        (["admin", "user", "set", "--role", "="], ["user", "admin", "readonly"]),
        (["completion", ""], ["bash", "zsh", "fish", "powershell"]),
        (["help", "kill"], ["kill_job"]),
        (["query_job", "--jo"], ["--job_id="]),
        (["server", "logs", "--fo"], ["--follow"]),
        (["submit_job", "--job_type", "="], ["gpu", "cpu"]),
        (["submit_job", "--job_type", "=", "g"], ["gpu"]),
        (["submit_job", "--job_type", "c"], ["cpu"]),
        (["submit_job", "--watch_mode", "="], ["0", "1"]),
        (["get_files", "--download", "="], ["0", "1"]),
        (["submit_job", "--files", "=", "sub"], ["subdir"]),
        (["submit_job", "--config", "cli"], ["client.conf"]),
        (["list_jobs", "--state", "=", "kill"], ["killing", "killed"]),
        (["nonsense", "--x"], []),
    ],
    ids=lambda words: " ".join(words),
)
def test_bash_offers(words: list[str], want: list[str], tmp_path: Path) -> None:
    (tmp_path / "subdir").mkdir()
    (tmp_path / "subfile").write_text("")
    (tmp_path / "client.conf").write_text("")
    assert offers(tmp_path, *words) == want


def test_bash_knows_every_flag(tmp_path: Path) -> None:
    for command in TABLE:
        found = {flag.rstrip("=") for flag in offers(tmp_path, *command.name.split(), "--")}
        assert found == {option.flag for option in command.options}


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_shell_gets_a_script_that_names_everything(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in TABLE:
        assert all(word in script for word in command.name.split())
        for option in command.options:
            assert f"-l {option.name} " in script if shell == "fish" else option.flag in script
    assert "get_fils" not in script


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])]
)
def test_a_shell_that_is_here_reads_its_script(
    shell: str, check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    assert main(["completion", shell]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    done = subprocess.run([program, *check, str(path)], capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")
