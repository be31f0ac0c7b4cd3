"""`--help`: a first screen, groups, everything in both languages and no wider than the terminal."""

from __future__ import annotations

import re
import shlex

import pytest

from paddlecloud.cli import help as cli_help
from paddlecloud.cli import registry
from paddlecloud.cli._text_width import width
from paddlecloud.cli.parser import Command
from paddlecloud.model.jobs.params import PARAMETERS

EVERY = registry.load_all()
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def loaded(name: str) -> Command:
    command = registry.load(name)
    assert command is not None
    return command


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_first_screen_has_the_commands_of_every_day(lang: str) -> None:
    text = cli_help.program(lang)
    shown = re.findall(r"^  ([a-z][a-z_ ]*?)  +\S", text, re.M)
    assert shown == [name for _, names in registry.FIRST for name in names]
    assert 9 <= len(shown) <= 12
    assert len(text.splitlines()) <= 30, "it fits a terminal"
    assert "help all" in text
    assert bool(CHINESE.search(text)) == (lang == "zh")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_help_all_has_the_rest(lang: str) -> None:
    text = cli_help.everything(lang)
    for command in EVERY:
        assert re.search(rf"^  {command.name}  +\S", text, re.M)
    for (english, chinese), _ in registry.SECTIONS:
        assert f"\n{chinese if lang == 'zh' else english}\n" in text


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("columns", [60, 80, 132])
def test_no_line_is_wider_than_the_terminal(lang: str, columns: int) -> None:
    pages = [cli_help.program(lang, columns), cli_help.everything(lang, columns)]
    pages += [cli_help.group(name, lang, columns) for name in registry.GROUPS]
    pages += [cli_help.command(command, lang, columns) for command in EVERY]
    for page in pages:
        for line in page.splitlines():
            assert width(line) <= columns, line


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("columns", [60, 80])
def test_a_page_has_every_option_and_examples_to_copy(lang: str, columns: int) -> None:
    for command in EVERY:
        page = cli_help.command(command, lang, columns)
        for option in command.options:
            assert re.search(rf"^  (-\w, )?{option.flag}\b", page, re.M)
        copied = [shlex.split(line) for line in page.replace("\\\n", "").splitlines()[-9:]
                  if line.startswith("  ")]  # fmt: skip
        assert all(shlex.split(example) in copied for example in command.examples), page


def test_the_options_of_a_submit_are_grouped_the_usual_ones_first() -> None:
    groups = cli_help.option_groups(loaded("submit_job"))
    names = [option.name for _, options in groups for option in options]
    assert names[:2] == ["files", "start_cmd"]
    assert sorted(names) == sorted(option.name for option in loaded("submit_job").options)
    assert {"instance_count", "pservers"} <= {option.name for option in groups[2][1]}
    grouped = {name for _, names in loaded("submit_job").groups for name in names}
    assert grouped <= set(names)
    assert {p.name for p in PARAMETERS} - grouped == {"description"}
    page = cli_help.command(loaded("submit_job"), "zh")
    assert page.index("常用参数") < page.index("资源") < page.index("其他参数")


def test_help_names_defaults_and_choices() -> None:
    get_files = " ".join(cli_help.command(loaded("get_files"), "en").split())
    assert "a directory that does not exist yet (default: output/<job_id>)" in get_files
    option = next(o for o in loaded("data convert").options if o.default == "snappy")
    assert cli_help.spelling(option) == "--compressor=none|snappy|gzip"
    assert cli_help.explanation(option, "en").endswith(" (default: snappy)")
    assert cli_help.explanation(option, "zh").endswith("（默认：snappy）")
    option = next(o for o in loaded("completion").options if o.name == "shell")
    assert cli_help.explanation(option, "en").endswith("; one of bash, zsh, fish, powershell")
    assert cli_help.explanation(option, "zh").endswith("；可选：bash、zsh、fish、powershell")
    option = next(o for o in loaded("machine join").options if o.name == "name")
    assert cli_help.explanation(option, "en").endswith(" (default: its host name)")
    assert cli_help.explanation(option, "zh").endswith("（默认：主机名）")
