"""The pages can be followed one after another, and again, in one directory: no names collide.

Nothing runs here: what a page writes is read from its commands. A download goes into a directory
with the name of its job, because one that exists is refused; settings to try are written into a
home of their own, because those of the person are not ours to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.docs.pages import blocks, english_of, name_of, steps
from tests.docs.test_pages import RUN

HEREDOC = re.compile(r"(?ms)(<<'?(\w+)'?[^\n]*\n).*?^\2$")
QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
#: What a shell command writes: redirections, directories, files by option.
WRITES = (
    r">{1,2} *(?!&|/dev/)([^\s;|&)]+)",
    r"\b(?:mkdir|touch) (?:-p )?([^\n;|&]+)",
    r"\bcp (?:-\w+ )?\S+ (\S+)",
    r"--(?:output|output_path|download_dir)=(\S+)",
)
PYTHON_WRITES = (
    r"download_dir=f?\"([^\"]+)",
    r"\b(?:Writer|convert)\(\"([^\"]+)",
    r"\bPath\(\"([^\"]+)\"\)\.mkdir",
)
FRESH = re.compile(r"\$JOB|\{job\.id\}|^\$")


def written(text: str) -> Iterator[str]:
    """Every path that the commands of a page write to, as it stands there."""
    for info, script in scripts(text):
        bare = script if info == "python" else QUOTED.sub("''", HEREDOC.sub(r"\1", script))
        for pattern in PYTHON_WRITES if info == "python" else WRITES:
            for found in re.findall(pattern, bare):
                yield from found.split()


def scripts(text: str) -> Iterator[tuple[str, str]]:
    """What runs of a page: the blocks, of a console the commands alone."""
    for block in blocks(text):
        if block.info == "console":
            yield block.info, "".join(f"{command}\n" for command, _ in steps(block.text))
        elif block.info in ("sh", "python"):
            yield block.info, block.text


def kept(text: str) -> set[str]:
    """The names in the directory, or in the home, that a page leaves behind, the same each time."""
    paths = [path for path in written(text) if not FRESH.search(path)]
    return {re.match(r"(~/)?[^/]*", path)[0] for path in paths}  # type: ignore[index]  # matches ""


def downloads(text: str) -> list[str]:
    """The commands that download into a directory which a second time is there already."""
    commands = "".join(script for _, script in scripts(text)).replace("\\\n", "")
    ours = [line for line in commands.splitlines() if "download_dir=" in line]
    return [line for line in ours if not re.search(r"download_dir=\S*(\$JOB|\{job\.id\})", line)]


def test_no_two_pages_write_to_the_same_place() -> None:
    pages = {page: kept(page.read_text(encoding="utf-8")) for page in RUN}
    assert sum(map(len, pages.values())) > 20
    for one, other in combinations(pages, 2):
        if english_of(one) != english_of(other):
            both = pages[one] & pages[other]
            assert not both, f"{name_of(one)} and {name_of(other)} both write to {both}"


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_a_page_can_be_followed_again(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert downloads(text) == []
    assert "~/.paddlecloud" not in kept(text), "try settings in a PADDLECLOUD_HOME of their own"


@pytest.mark.parametrize(
    ("block", "want"),
    [
        ("sh\necho 'a > b' > dir/file", {"dir"}),
        (
            "sh\nls 2> errors.txt | cat >> all.txt; true > /dev/null 2>&1",
            {"errors.txt", "all.txt"},
        ),
        (
            "sh\ncat > one <<'END'\necho > two\nEND\ncat >> ~/.paddlecloud/server.toml",
            {"one", "~/.paddlecloud"},
        ),
        ("sh\nmkdir -p a/b c\ncp -r x/. d", {"a", "c", "d"}),
        ("sh\nls > $HERE/x\nget_files --download=1 --download_dir=y-$JOB", set()),
        ("console\n$ touch a\nls > b", {"a"}),
        ('python\nget_files(job, download_dir="z")\nPath("p").mkdir()', {"z", "p"}),
        ("text\nls > a", set()),
    ],
)
def test_what_is_written_is_found(block: str, want: set[str]) -> None:
    assert kept(f"```{block}\n```\n") == want


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("get_files $JOB --download=1", False),
        ("get_files $JOB --download=1 --download_dir=results", True),
        ("get_files $JOB --download=1 \\\n --download_dir=results-$JOB", False),
        ("get_files $JOB", False),
    ],
)
def test_a_download_that_works_only_once_is_found(command: str, found: bool) -> None:
    assert bool(downloads(f"```sh\n{command}\n```\n")) is found
