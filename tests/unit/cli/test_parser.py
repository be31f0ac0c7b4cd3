"""The parser: both spellings of a value, and a sentence for every mistake."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.cli.parser import BOOL, FLAG, LIST, NUMBER, TEXT, Command, Option, parse
from paddlecloud.model.errors import Invalid

HELP = ("what it is", "说明")
COMMAND = Command(
    "try",
    lambda args, context: 0,
    HELP,
    operand="job_id",
    options=(
        Option("job_id", TEXT, HELP),
        Option("files", TEXT, HELP, aliases=("file",)),
        Option("start_cmd", TEXT, HELP),
        Option("env", LIST, HELP),
        Option("download", BOOL, HELP),
        Option("lines", NUMBER, HELP, short="n"),
        Option("follow", FLAG, HELP, short="f"),
        Option("shell", TEXT, HELP, choices=("bash", "zsh")),
    ),
)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--files=job"], {"files": "job"}),
        (["--files", "job"], {"files": "job"}),
        (["--file=job"], {"files": "job"}),
        (["--files="], {"files": ""}),
        (["--start_cmd=sh run.sh --lr=0.1"], {"start_cmd": "sh run.sh --lr=0.1"}),
        (["--start_cmd", "--lr"], {"start_cmd": "--lr"}),
        (["--start_cmd", "-"], {"start_cmd": "-"}),
        (["--env", "A=1", "--env=B=2=3"], {"env": ["A=1", "B=2=3"]}),
        (["--download=1"], {"download": True}),
        (["--download", "0"], {"download": False}),
        (["-n", "5"], {"lines": 5}),
        (["-n5", "-f"], {"lines": 5, "follow": True}),
        (["--lines=0"], {"lines": 0}),
        (["--follow=0"], {"follow": False}),
        (["job-1", "--json"], {"job_id": "job-1", "json": True}),
        (["--json", "--", "-odd"], {"job_id": "-odd", "json": True}),
        (["--job_id=job-1", "--job_id=job-1"], {"job_id": "job-1"}),
        (["--shell=zsh"], {"shell": "zsh"}),
        (["--config", "x.conf"], {"config": "x.conf"}),
    ],
)
def test_values_are_read(words: list[str], want: dict[str, Any]) -> None:
    args = parse(COMMAND, words)
    assert {name: args[name] for name in want} == want
    assert args["env"] == want.get("env", [])


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--fiels=job"], "flag_meant", "--files"),
        (["-files=job"], "flag_meant", "--files"),
        (["--job-id=3"], "flag_meant", "--job_id"),
        (["--zzzzzz"], "flag_unknown", "try --help"),
        (["--secre=1"], "flag_unknown", "--secre"),
        (["-x"], "flag_unknown", "-x"),
        (["--files"], "flag_needs_value", "--files=FILES"),
        (["--files", "--json"], "flag_needs_value", "--files"),
        (["--json=yes"], "flag_takes_no_value", "yes"),
        (["--download=yes"], "flag_bool", "yes"),
        (["--lines=many"], "flag_number", "many"),
        (["--lines=-1"], "flag_number", "-1"),
        (["--lines=٣"], "flag_number", "٣"),
        (["--lines=" + "9" * 13], "flag_number", "999"),
        (["--shell=tcsh"], "flag_choice", "bash, zsh"),
        (["--files=a", "--file=b"], "flag_twice", "--file"),
        (["a", "b"], "operand_second", "one JOB_ID, b"),
        (["--job_id=a", "b"], "operand_second", "b"),
    ],
)
def test_mistakes_are_named(words: list[str], code: str, part: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(COMMAND, words)
    assert caught.value.code == code
    assert part in caught.value.text("en")
    assert caught.value.text("zh") != caught.value.text("en")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--nonsense", "--help"], ["x", "y", "-h"]])
def test_whoever_asks_for_help_gets_it(words: list[str]) -> None:
    assert parse(COMMAND, words)["help"] is True


def test_a_misspelt_property_of_an_option_is_a_mistake_of_ours() -> None:
    with pytest.raises(AttributeError):
        Option("name", TEXT, HELP, metvar="X")
    with pytest.raises(AttributeError):
        Command("name", lambda args, context: 0, HELP, option=())


def test_an_option_with_some_things_otherwise() -> None:
    more = {
        "short": "n",
        "choices": ("a", "b"),
        "shown_default": "a",
        "metavar": "N",
    }
    option = Option("name", TEXT, HELP, **more)
    same = {"kind": TEXT, "help": HELP, "aliases": (), "completes": "", "default": None, **more}
    other = option.but(shown_default=None, name="other", offers=("a",))
    same |= {"required": False}  # type: ignore[dict-item]  # a table of anything
    want = {**same, "name": "other", "shown_default": None, "offers": ("a",)}
    assert {name: getattr(other, name) for name in Option.__slots__} == want
    want = {**same, "name": "name", "offers": ()}
    assert {name: getattr(option, name) for name in Option.__slots__} == want
    with pytest.raises(AttributeError):
        option.but(metvar="X")


words = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(["--files", "--env", "-n", "-f", "--download=1", "--", "--lines=3", "-"]),
        st.text(max_size=6).map(lambda text: "--files=" + text),
    ),
    max_size=6,
)


@given(words)
def test_any_words_are_read_or_refused(given: list[str]) -> None:
    try:
        args = parse(COMMAND, given)
    except Invalid as error:
        assert error.text("en") and error.text("zh")
    else:
        assert args["help"] or set(args) == {option.name for option in COMMAND.options}


@given(st.text(), st.text())
def test_a_value_arrives_as_it_is(value: str, variable: str) -> None:
    args = parse(COMMAND, ["--start_cmd=" + value, "--env", "K=" + variable])
    if "--help" in (value, variable):
        return
    assert (args["start_cmd"], args["env"]) == (value, ["K=" + variable])
