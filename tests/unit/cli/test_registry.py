"""The table of commands: found by their words, complete in both languages, examples that parse."""

from __future__ import annotations

import re
import shlex

import pytest

from paddlecloud.cli import help as cli_help
from paddlecloud.cli import registry
from paddlecloud.cli.parser import Command, parse
from paddlecloud.messages import cli
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.params import PARAMETERS

EVERY = registry.load_all()
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_the_commands_of_the_product_are_there() -> None:
    assert [command.name for command in EVERY] == [
        "submit_job", "query_job", "list_jobs", "logs", "top", "exec", "port-forward", "get_files",
        "kill_job", "delete_job", "rerun", "diff", "plsc",
        "gen_token", "token list", "token create", "token revoke",
        "secret set", "secret list", "secret rm",
        "notifications show", "notifications set", "notifications test", "quota",
        "doctor", "config show", "server start", "server run", "server check", "server stop",
        "server status", "server logs", "machine join", "machine status", "machine leave",
        "completion", "version",
        "data ls", "data head", "data stat", "data verify", "data repair", "data convert",
        "data split",
        "admin user list", "admin user show", "admin user create", "admin user set",
        "admin user disable", "admin user enable", "admin user delete", "admin token list",
        "admin token create", "admin token revoke", "admin job list", "admin job show",
        "admin job kill", "admin machine invite", "admin machine list", "admin machine show",
        "admin machine label", "admin machine drain", "admin machine undrain",
        "admin machine remove", "admin pool create", "admin pool delete", "admin pool list",
        "admin quota show", "admin quota set",
        "admin quota plans", "admin audit", "admin gc", "admin backup", "admin restore",
        "admin verify",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "name", "rest"),
    [
        (["query_job", "x"], "query_job", ["x"]),
        (["server", "logs", "-f"], "server logs", ["-f"]),
        (["get_fils"], "get_fils", []),
        (["admin", "gc"], "admin gc", []),
        (["admin", "user", "show", "x"], "admin user show", ["x"]),
    ],
)
def test_words_name_a_command(words: list[str], name: str, rest: list[str]) -> None:
    command, left = registry.find(words)
    assert (command.name, list(left)) == (name, rest)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["server"], "start, run, check, stop, status, logs"),
        (["server", "--json"], "status"),
        (["admin"], "quota, audit, gc, backup, restore, verify"),
        (["admin", "job"], "list, show, kill"),
    ],
)
def test_a_group_alone_names_its_commands(words: list[str], part: str) -> None:
    with pytest.raises(Invalid) as caught:
        registry.find(words)
    assert caught.value.code == "command_incomplete"
    assert part in str(caught.value)


def test_nobody_is_told_of_a_hidden_spelling() -> None:
    assert "get_fils" not in cli_help.program("en") + cli_help.everything("en")
    with pytest.raises(Invalid) as caught:
        registry.find(["get_fil"])
    assert caught.value.params["meant"] == "get_files"


def test_every_parameter_of_a_submit_is_a_flag() -> None:
    command = registry.load("submit_job")
    assert command is not None
    assert {p.name for p in PARAMETERS} <= {option.name for option in command.options}
    assert "--file" in next(o for o in command.options if o.name == "files").spellings


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.name)
def test_every_command_is_described_in_both_languages(command: Command) -> None:
    for english, chinese in [command.help, *(option.help for option in command.options)]:
        assert english and not CHINESE.search(english)
        assert CHINESE.search(chinese)
    names = [spelling for option in command.options for spelling in option.spellings]
    assert len(names) == len(set(names)), "two options share a spelling"
    assert {"json", "config", "help"} <= {option.name for option in command.options}
    assert not command.operand or command.operand in {o.name for o in command.options}


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.name)
def test_every_example_parses(command: Command) -> None:
    assert command.examples
    for example in command.examples:
        if not example.startswith("paddlecloud "):
            continue
        words = shlex.split(example.split("|")[0])[1:]
        if words[0] == "--version":
            continue
        found, rest = registry.find(words)
        assert found.name == command.name
        parse(found, rest)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [
        ("submit_job", "job_type", "gpu"),
        ("submit_job", "priority", "urgent"),
        ("notifications set", "events", "quota_80"),
        ("list_jobs", "state", "schedule_timeout"),
        ("list_jobs", "state", "running"),
    ],
)
def test_help_names_a_choice_once(lang: str, name: str, flag: str, value: str) -> None:
    option = next(o for o in loaded(name).options if o.name == flag)
    text = cli_help.explanation(option, lang).replace("default gpu", "").replace("默认 gpu", "")
    assert text.count(value) == 1
    assert "schedule timeout" not in text


def test_usage_shows_what_may_and_what_has_to_be_given() -> None:
    shown = {
        name: cli_help.usage(loaded(name)).split("[--key")[0].strip()
        for name in ("top", "diff", "logs", "data ls")
    }
    assert shown == {
        "top": "paddlecloud top [JOB]",
        "diff": "paddlecloud diff JOB JOB",
        "logs": "paddlecloud logs JOB",
        "data ls": "paddlecloud data ls FILE ...",
    }
    for name, flag, wanted in (
        ("submit_job", "start_cmd", True),
        ("rerun", "start_cmd", False),
        ("plsc", "start_cmd", False),
        ("top", "job_id", False),
        ("query_job", "job_id", True),
    ):
        option = next(o for o in loaded(name).options if o.name == flag)
        assert ("(required)" in cli_help.explanation(option, "en")) is wanted
        assert ("（必填）" in cli_help.explanation(option, "zh")) is wanted


def loaded(name: str) -> Command:
    command = registry.load(name)
    assert command is not None
    return command


def placeholders(sentence: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", sentence))


@pytest.mark.parametrize("code", cli.TEXTS)
def test_every_message_exists_in_both_languages(code: str) -> None:
    english, chinese = cli.TEXTS[code]
    assert placeholders(english) == placeholders(chinese)
    assert english and not CHINESE.search(english)
    assert CHINESE.search(chinese) or not re.sub(r"{\w+}|\W", "", english)


def test_a_sentence_of_the_model_can_be_said_too() -> None:
    assert "a, b" in cli.say("files_skipped", "en", paths="a, b")
