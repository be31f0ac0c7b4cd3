"""Every command in the README, the quickstart and the how-to guides runs and does what it shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.sandbox import isolation
from tests.docs.pages import (
    DOCS,
    PAGES,
    TOP,
    Block,
    Session,
    blocks,
    chinese_of,
    name_of,
    shows,
    steps,
)

RUN = sorted(
    [*TOP.glob("README*.md"), *DOCS.glob("quickstart*.md"), *DOCS.glob("how-to/*.md")], key=name_of
)
# The README and the quickstart tell how to choose the language; the guides come after them.
CHINESE_GUIDES = [page for page in DOCS.glob("how-to/*.md") if page == chinese_of(page)]
RUNNABLE = ("sh", "console", "python")
SHOWN_ONLY = ("text", "toml", "ini", "json", "mermaid")

# Pages on which jobs of a team run: that takes a uid for each user.
SEPARATES = {"docs/how-to/run-a-team-server.md", "docs/how-to/run-a-team-server.zh.md"}

WITH_POSTGRES = "tests/integration/server/test_backup_process.py runs it"
# What a page shows and the tests do not run, with the reason.
JOINED = "tests/integration/machines runs these in network namespaces"
NOT_RUN = {
    "paddlecloud admin pool create gpus": JOINED,
    "paddlecloud admin machine invite --pool=gpus --uses=3 --ttl=2h": JOINED,
    "paddlecloud machine join https://server:8443 --token TOKEN --label=gpu=a100": JOINED,
    "paddlecloud admin machine list": JOINED,
    "paddlecloud admin machine label gpu-01 --label=gpu=a100": JOINED,
    'paddlecloud admin machine drain gpu-01 --reason="new driver"': JOINED,
    "paddlecloud admin machine undrain gpu-01": JOINED,
    "paddlecloud admin machine remove gpu-01": JOINED,
    "make demo": "tests/integration runs it; it installs the whole project",
    "curl -fsSL https://cloud.example.com/install.sh | sh": "server/test_client_files.py does it",
    "export PADDLECLOUD_CA_FILE=$PWD/ca.pem": "the line below uses it",
    "curl --cacert ca.pem -fsSL https://cloud.example.com/install.sh | sh": (
        "server/test_client_files.py does it"
    ),
    "make wheel": "it writes into the project",
    'pipx install "dist/paddlecloud-0.1.0-py3-none-any.whl[server]"': "needs pipx and an index",
    'uv tool install "dist/paddlecloud-0.1.0-py3-none-any.whl[server]"': "needs an index",
    'python3 -m pip install "dist/paddlecloud-0.1.0-py3-none-any.whl[server]"': "needs an index",
    "sh scripts/install.sh": "tests/integration/test_install.py runs it",
    "make install": "it makes the environment that these tests run in",
    "paddlecloud server logs -f": "it goes on until it is interrupted",
    "python3 -m pip install paddlepaddle": "900 MB; scripts/paddle.py installs it for tests/paddle",
    "sh examples/collective/submit.sh --watch_mode=1": "tests/paddle runs it",
    "sh examples/launch/submit.sh --watch_mode=1": "tests/paddle runs it",
    "sh examples/fleet/submit.sh --watch_mode=1": "tests/paddle runs it",
    "sh examples/ps/submit.sh --watch_mode=1": "tests/paddle runs it",
    "paddlecloud plsc --watch_mode=1": "tests/paddle runs it",
    "paddlecloud plsc --instance_count=2 --job_type=cpu --watch_mode=1": "tests/paddle runs it",
    'paddlecloud plsc --start_cmd="sh run.sh --passes 8 --lr 0.05" --watch_mode=1': (
        "needs PaddlePaddle"
    ),
    'paddlecloud submit_job --files=my_faces --start_cmd="sh run.sh" --watch_mode=1': (
        "needs PaddlePaddle and somebody's images"
    ),
    "paddlecloud admin backup /mnt/backup/tuesday --config server.toml": WITH_POSTGRES,
    "createdb paddlecloud_restored": WITH_POSTGRES,
    "PADDLECLOUD_HOME=/srv/restored paddlecloud admin restore /mnt/backup/tuesday "
    "--config restored.toml": WITH_POSTGRES,
    "paddlecloud query_job JOB --json": "JOB stands for any job",
    "paddlecloud exec -it last -- bash": "needs a terminal; cli/test_tunnels.py has one",
    "echo notebook > requirements.txt": "the line below uses it",
    "paddlecloud submit_job --files=. --requirements=requirements.txt "
    '--start_cmd="jupyter notebook --ip=127.0.0.1 --port=8888 --no-browser --allow-root '
    '--ServerApp.allow_remote_access=True"': "it installs 200 MB",
    "paddlecloud port-forward last 8888": "it goes on until it is interrupted",
    "paddlecloud logs last --grep token=": "needs the job above",
    "paddlecloud exec last -- pip install tensorboard": "needs an index",
    "paddlecloud exec last -- tensorboard --logdir=runs --host=127.0.0.1 --port=6006": (
        "it goes on until it is interrupted"
    ),
    "paddlecloud port-forward last 6006": "it goes on until it is interrupted",
    "paddlecloud exec last -- pip install visualdl": "needs an index",
    "paddlecloud exec last -- visualdl --logdir=log --host=127.0.0.1 --port=8040": (
        "it goes on until it is interrupted"
    ),
    "paddlecloud port-forward last 8040": "it goes on until it is interrupted",
    r"printf 'numpy==1.26.4\nvisualdl==2.5.3\n' > requirements.txt": "the line below uses it",
    'paddlecloud submit_job --files=job --start_cmd="python train.py" '
    "--requirements=requirements.txt --watch_mode=1": "it installs 400 MB",
}
SLOW = pytest.mark.slow(seconds=3)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.end()


def read_first(page: Path) -> bool:
    """The pages that readers start with run with the fast tests, the others with the slow.

    The Chinese ones have the commands of the English."""
    return page.parent.name != "how-to" and not page.name.endswith(".zh.md")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=() if read_first(page) else SLOW) for page in RUN],
)
def test_a_page_runs_as_it_is_written(page: Path, tmp_path: Path) -> None:
    """In its language, and it leaves directory and home of the terminal for the next page."""
    able = sys.platform == "linux" and isolation.possible()
    if name_of(page) in SEPARATES and not able:
        pytest.skip("needs Linux 5.12 and the rights of root")
    session = Session(tmp_path, lang="zh" if page in CHINESE_GUIDES else "")
    try:
        follow(page, session)
        assert session.run("pwd") == (0, f"{session.work}\n")
        assert session.run('test -z "$PADDLECLOUD_HOME"') == (0, "")
    finally:
        session.end()


def follow(page: Path, session: Session) -> None:
    """Do what the page says, and compare what it shows."""
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{name_of(page)}:{block.line}"
        if block.info == "sh":
            code, output = session.run(block.text)
            assert code == 0, f"{where} ended with {code}:\n{output}"
        elif block.info == "python":
            code, output = session.run_python(block.text)
            assert code == 0, f"{where} ended with {code}:\n{output}"
        elif block.info == "console":
            for command, shown in steps(block.text):
                code, output = session.type(command)
                assert code == 0, f"{where}: {command} ended with {code}:\n{output}"
                assert shows(output, shown), f"{where}: {command} printed\n{output}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_block_is_of_a_known_kind(page: Path) -> None:
    known = {*RUNNABLE, *SHOWN_ONLY, "sh no-run"}
    for block in blocks(page.read_text(encoding="utf-8")):
        assert block.info in known, f"{name_of(page)}:{block.line}: {block.info!r}"
        if page not in RUN:
            assert block.info not in RUNNABLE, f"{name_of(page)}:{block.line}: nobody runs it"


def test_what_is_not_run_has_a_reason() -> None:
    shown = {
        line.partition("#")[0].strip()
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.info == "sh no-run" and name_of(page) != "CONTRIBUTING.md"
        for line in block.text.splitlines()
    }
    assert shown == set(NOT_RUN)


@pytest.mark.parametrize(
    ("shown", "output", "want"),
    [
        ("a\n", "a\r\n", True),
        ("a\n", "b\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nd\n", True),
        ("a\n...\nd\n", "a\nb\n", False),
        ("", "", True),
        ("", "a\n", False),
        ("up 1 B\n", "up [#-] 50%\rup 300.5 KiB\n", True),
        (f"job-{'0' * 32}: killed\n", f"job-{'1' * 32}: killed\n", True),
        (f"job-{'0' * 32}: killed\n", f"job-{'1' * 32}: failed\n", False),
        ("running: http://127.0.0.1:1 (pid 2)\n", "running: http://127.0.0.1:80 (pid 9)\n", True),
        ("a   b\n", "a  b\n", True),
    ],
)
def test_output_is_compared_without_what_differs(shown: str, output: str, want: bool) -> None:
    assert shows(output, shown) is want


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n```sh\nls\n```\n\n1. b\n\n   ```console\n   $ ls\n   x\n   ```\n"
    assert blocks(text) == [
        Block(info="sh", text="ls\n", line=2),
        Block(info="console", text="$ ls\nx\n", line=8),
    ]
    assert steps("$ ls\nx\ny\n$ true\n") == [("ls", "x\ny\n"), ("true", "")]


@pytest.mark.parametrize("text", ["```sh\nls\n", "````sh\nls\n```\n"])
def test_an_open_block_is_found(text: str) -> None:
    with pytest.raises(AssertionError, match="never closed"):
        blocks(text)


def test_a_session_keeps_variables_and_directory_and_tells_failures(session: Session) -> None:
    assert session.run("X='a b'\ncd examples") == (0, "")
    assert session.type('echo "$X"; test -d hello_train') == (0, "a b\r\n")
    assert session.run("false\necho no")[0] == 1
    assert session.run_python("import os; raise SystemExit(os.environ['X'] != 'a b')")[0] == 0
