"""What a command accepts, as data, and the parser that reads a command line by it.

The table exists because four readers share it: the parser, `--help`, the completion scripts and
the reference in the documents. argparse could serve only the first two, speaks one language, and
costs as much time at start as a bare Python. Only the types of values are checked here; commands
check their ranges.
"""

from __future__ import annotations

import os

from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from paddlecloud.cli.context import Context

    Text = tuple[str, str]
    Args = dict[str, Any]
    Run = Callable[[Args, Context], int]

#: What an option takes: nothing, a text, a whole number, 0 or 1, or a text each time it is given.
FLAG, TEXT, NUMBER, BOOL, LIST = "flag", "text", "number", "bool", "list"
#: How a sentence shows a word that has no letters.
_EMPTY = '""'


class Option:
    """One `--name`.

    `choices` are enforced here. For a shell, `offers` are likely values, and `completes` is "file",
    "directory" or "job". `shown_default`, one text or one for each language, is for help only: what
    the command itself assumes; so is `required`, which the command itself insists on.
    """

    __slots__ = (
        "aliases", "choices", "completes", "default", "help", "kind", "metavar", "name", "offers",
        "required", "short", "shown_default",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, help_text: Text, /, **more: Any) -> None:
        self.name = name
        self.kind = kind
        self.help = help_text
        self.metavar = name.upper()
        self.default: object = False if kind == FLAG else None
        self.shown_default: object = None
        self.choices: tuple[str, ...] = ()
        self.offers: tuple[str, ...] = ()
        self.completes = ""
        self.required = False
        self.short = ""
        self.aliases: tuple[str, ...] = ()
        for key, value in more.items():
            setattr(self, key, value)

    @property
    def flag(self) -> str:
        return "--" + self.name

    @property
    def spellings(self) -> tuple[str, ...]:
        short = ("-" + self.short,) if self.short else ()
        return (self.flag, *short, *("--" + alias for alias in self.aliases))

    def but(self, **changes: Any) -> Option:
        """The same option with some things otherwise."""
        same = {name: getattr(self, name) for name in self.__slots__}
        return Option(self.name, self.kind, self.help, **(same | changes))


class Command:
    """One command: its words, what it takes, what it does.

    `operand` names the option that a word without dashes fills: `logs JOB` is `logs --job_id=JOB`.
    `words` shows it in the usage where the one word of its `metavar` is not enough.
    `rest` names what the words after `--`, or after the operand, are for: they are another
    program's, and not parsed.
    `groups` are the headings of `--help` with the names of their options; other options follow.
    """

    __slots__ = ("examples", "groups", "help", "name", "operand", "options", "rest", "run", "words")

    def __init__(self, name: str, run: Run, help_text: Text, **more: Any) -> None:
        self.name = name
        self.run = run
        self.help = help_text
        self.operand = ""
        self.words = ""
        self.rest = ""
        self.options: tuple[Option, ...] = ()
        self.examples: tuple[str, ...] = ()
        self.groups: tuple[tuple[Text, tuple[str, ...]], ...] = ()
        for key, value in more.items():
            setattr(self, key, value)
        self.options += COMMON


COMMON = (
    Option(
        "json", FLAG, ("print the answer as JSON", "以 JSON 输出结果"),
    ),
    Option(
        "config", TEXT, ("read this configuration file", "使用指定的配置文件"),
        metavar="FILE", completes="file",
    ),
    Option(
        "help", FLAG, ("print this help", "显示本帮助"), short="h",
    ),
)  # fmt: skip

JOB_ID = Option(
    "job_id", TEXT,
    (
        "the job: its id, the beginning of the id (4 hex digits or more), its name, or last",
        "任务：任务 ID、ID 的开头（至少 4 位十六进制数字）、任务名称或 last（最新的任务）",
    ),
    metavar="JOB", required=True, completes="job",
)  # fmt: skip


def parse(command: Command, words: Sequence[str]) -> Args:
    """The values by option name, defaults filled in; Invalid names the word that is wrong.

    `--help` takes precedence, whatever else is wrong.
    """
    words, others = _split(command, words)
    if "--help" in words or "-h" in words:
        return {"help": True}
    args: Args = {o.name: [] if o.kind == LIST else o.default for o in command.options}
    if command.rest:
        args[command.rest] = others
    given: set[str] = set()
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            for operand in reversed(rest):
                _set_operand(command, args, given, operand)
            break
        if len(word) > 1 and word.startswith("-"):
            _take_option(command, args, given, word, rest)
        else:
            _set_operand(command, args, given, word)
    return args


def _split(command: Command, words: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Our words, and those of another program that stand behind them."""
    if not command.rest:
        return words, []
    operands, skip = 0, False
    for place, word in enumerate(words):
        if word == "--":
            return words[:place], list(words[place + 1 :])
        if skip or (len(word) > 1 and word.startswith("-")):
            option = None if skip or "=" in word else _find(command, word)
            skip = option is not None and option.kind != FLAG
            continue
        operands += 1
        if operands == 2:
            return words[:place], list(words[place:])
    return words, []


def _take_option(command: Command, args: Args, given: set[str], word: str, rest: list[str]) -> None:
    spelling, equals, value = word.partition("=")
    if word[1] != "-" and word[2:].isdigit():
        # -n5 is -n 5, as everywhere; other letters joined to a flag are a misspelt long one.
        spelling, equals, value = word[:2], "=", word[2:]
    option = _find(command, spelling)
    if option is None and (letters := _joined_flags(command, word)):
        args.update({each.name: True for each in letters})
        return
    if option is None:
        raise _unknown(command, word.partition("=")[0])
    if option.kind == FLAG:
        if equals and value not in ("0", "1"):
            raise Invalid("flag_takes_no_value", flag=spelling, value=value or _EMPTY)
        args[option.name] = value != "0"
        return
    if not equals:
        # `--name --json` is a missing value; other words with a dash are values: `--start_cmd -x`.
        if not rest or _find(command, rest[-1].partition("=")[0]) is not None:
            raise Invalid("flag_needs_value", flag=spelling, metavar=option.metavar)
        value = rest.pop()
    _set(option, args, given, spelling, value)


def _joined_flags(command: Command, word: str) -> list[Option]:
    """The flags of `-it`; none if any letter is not one."""
    found = [_find(command, "-" + letter) for letter in word[1:]]
    flags = [option for option in found if option is not None and option.kind == FLAG]
    return flags if len(flags) == len(word) - 1 else []


def _find(command: Command, spelling: str) -> Option | None:
    for option in command.options:
        if spelling in option.spellings:
            return option
    return None


def _set(option: Option, args: Args, given: set[str], spelling: str, value: str) -> None:
    if option.kind == LIST:
        args[option.name].append(_typed(option, spelling, value))
        return
    if option.name in given and args[option.name] != _typed(option, spelling, value):
        raise Invalid("flag_twice", flag=spelling)
    given.add(option.name)
    args[option.name] = _typed(option, spelling, value)


def _typed(option: Option, spelling: str, value: str) -> object:
    if option.kind == NUMBER:
        if not (value.isascii() and value.isdigit() and len(value) <= 12):
            raise Invalid("flag_number", flag=spelling, value=value or _EMPTY)
        return int(value)
    if option.kind == BOOL:
        if value not in ("0", "1"):
            raise Invalid("flag_bool", flag=spelling, value=value or _EMPTY)
        return value == "1"
    if option.choices and value not in option.choices:
        known = ", ".join(option.choices)
        raise Invalid("flag_choice", flag=spelling, value=value or _EMPTY, choices=known)
    if option.completes in ("file", "directory") and (value == "~" or value.startswith("~/")):
        # A shell leaves the `~` of `--files=~/job` alone.
        return os.path.expanduser(value)  # noqa: PTH111 - importing pathlib costs 15 ms
    return value


def _set_operand(command: Command, args: Args, given: set[str], word: str) -> None:
    if not command.operand:
        raise Invalid("operand_unexpected", command=command.name, word=word or _EMPTY)
    option = next(option for option in command.options if option.name == command.operand)
    if args[option.name] is not None and option.name in given:
        values = {"command": command.name, "word": word or _EMPTY}
        raise Invalid("operand_second", metavar=option.metavar, **values)
    _set(option, args, given, option.metavar, word)


def _unknown(command: Command, spelling: str) -> Invalid:
    from paddlecloud.cli import _suggestions  # noqa: PLC0415 - only a mistake pays for it

    meant = _suggestions.flag(spelling, command.options)
    if meant is None:
        return Invalid("flag_unknown", flag=spelling, command=command.name)
    return Invalid("flag_meant", flag=spelling, command=command.name, meant=meant)
