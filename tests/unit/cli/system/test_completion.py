"""The completion scripts, bash's in a real bash; the others are checked for what they name."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from paddlecloud.cli.main import main
from paddlecloud.cli.registry import load_all
from paddlecloud.cli.system import completion
from tests.unit.client.fake_server import Answer, FakeServer, error, ok

TABLE = load_all()

# bash hands "=" over as a word of its own, as COMP_WORDBREAKS says.
ASK = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_paddlecloud
printf '%s\\n' "${COMPREPLY[@]}"
"""


# Stands in for the command that asks the server: shows what it is asked.
COMPLETE_JOBS = """
paddlecloud() {
    [ "$1 $3" = "complete_jobs --" ] && printf '%s\\tabout it\\n' "${2#--command=}:$4"
    echo "an error" >&2
}
"""


def offers(directory: Path, *words: str) -> list[str]:
    bash = shutil.which("bash")
    assert bash is not None, "bash is needed to test what is written for it"
    script = completion.bash(TABLE, "en") + COMPLETE_JOBS + ASK
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
        (["query_job", "a"], ["query_job:a"]),
        (["kill_job", "x", ""], ["kill_job:"]),
        (["query_job", "--job_id", "=", "a"], ["query_job:a"]),
        (["query_job", "--job_id", "="], ["query_job:"]),
        (["logs", "-f", "a"], ["logs:a"]),
        (["logs", "--worker", "a"], []),
        (["logs", "-w", "t", "a"], ["logs:a"]),
        (["admin", "job", "show", "a"], ["admin", "job", "show:a"]),
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


@pytest.fixture
def jobs(server: FakeServer) -> FakeServer:
    names = {"3": ("resnet", "success"), "2": ("resnet", "running"), "1": ("a b", "queue")}
    rows = [
        {"job_id": f"job-{digit * 32}", "job_name": name, "job_status": state}
        for digit, (name, state) in names.items()
    ]
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": rows, "next": None})]
    return server


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--", ""], [f"job-{'3' * 32}", "resnet", "last", f"job-{'2' * 32}", f"job-{'1' * 32}"]),
        (["--command=query_job", "--", "job-1"], [f"job-{'1' * 32}"]),
        (["--command=query_job", "--", "22"], ["2" * 32]),
        (["--command=query_job", "--", "--job_id=re"], ["resnet"]),
        (["--command=kill_job", "--", ""], [f"job-{'2' * 32}", f"job-{'1' * 32}"]),
        (["--command=exec"], [f"job-{'2' * 32}"]),
        (["--command=delete_job", "--", "l"], ["last"]),
        (["--", "x"], []),
    ],
    ids=" ".join,
)
def test_jobs_that_may_follow(
    jobs: FakeServer, words: list[str], want: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["complete_jobs", *words]) == 0
    captured = capsys.readouterr()
    assert [line.partition("\t")[0] for line in captured.out.splitlines()] == want
    assert (captured.err, len(jobs.seen)) == ("", 1)


def test_no_job_follows_when_the_server_refuses(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for answer in (error(401, "Unauthenticated", "auth_unknown_key"), Answer(b"<html>", 502)):
        server.routes["GET /api/v1/jobs"] = [answer]
        assert main(["complete_jobs", "--", ""]) == 0
    assert capsys.readouterr() == ("", "")
    assert len(server.seen) == 2, "a TAB repeats nothing"


def test_a_tab_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path / "home"))
    assert main(["complete_jobs", "--", ""]) == 0
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "home").exists()


def test_zsh_completes_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """bashcompinit calls the function as ksh would, where arrays begin at 0."""
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("zsh is not installed here")
    assert main(["completion", "zsh"]) == 0
    asked = "COMP_WORDS=(paddlecloud logs -f a); COMP_CWORD=3; _paddlecloud"
    script = capsys.readouterr().out + COMPLETE_JOBS
    script += f"""emulate ksh -c '{asked}; print -- "${{COMPREPLY[@]}}"'\n"""
    done = subprocess.run(
        [program, "-f", "-c", "autoload -U compinit && compinit -D -u\n" + script],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("logs:a\n", "")


def test_fish_completes_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = shutil.which("fish")
    if program is None:
        pytest.skip("fish is not installed here")
    assert main(["completion", "fish"]) == 0
    stand_in = """
function paddlecloud; printf '%s\\tabout it\\n' ab12 ab13 resnet; echo an error >&2; end
for line in "query_job ab" "logs --job_id=ab" "kill_job ab12 ab"
    complete -C "paddlecloud $line"
end
"""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [program, "--no-config", "-c", capsys.readouterr().out + stand_in],
        env=environ, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    words = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert words == ["ab12", "ab13", "--job_id=ab12", "--job_id=ab13", "ab12", "ab13"]
    assert done.stderr == ""
