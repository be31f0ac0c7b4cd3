"""Writes `--help`, of the program and of each command, from the tables in the reader's language."""

from __future__ import annotations

from paddlecloud.cli import registry
from paddlecloud.cli._text_width import cut, width, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.parser import Command, Option, Text

_WORDS: dict[str, Text] = {
    "usage": ("usage: ", "用法："),
    "about": (
        "One command takes a directory of training code to a finished run and brings logs and "
        "models back.",
        "一条命令把训练代码目录变成一次完成的训练，并取回日志和模型。",
    ),
    "options": ("Options", "参数"),
    "other_options": ("Other options", "其他参数"),
    "example": ("Example", "示例"),
    "examples": ("Examples", "示例"),
    "more": (
        "`paddlecloud COMMAND --help` describes a command, `paddlecloud help all` lists every "
        "command.",
        "paddlecloud 命令 --help 显示该命令的用法，paddlecloud help all 列出全部命令。",
    ),
    "each": (
        "`paddlecloud COMMAND --help` describes a command. Every command takes --json.",
        "paddlecloud 命令 --help 显示该命令的用法。所有命令都支持 --json。",
    ),
    "default": ("default", "默认"),
    "one_of": ("one of", "可选"),
    "required": ("required", "必填"),
}
#: Columns of the flags before their explanation; a longer flag has a line of its own.
_FLAGS = 24
#: Letters of the choices that are shown instead of a word for them.
_FEW = 20
#: No text is wider than this, however wide the terminal is.
_WIDEST = 100
_FIRST_EXAMPLE = 'paddlecloud submit_job --files=job --start_cmd="sh run.sh" --watch_mode=1'


def program(lang: str, columns: int = 80) -> str:
    """What `paddlecloud --help` prints: the commands of every day."""
    columns = min(columns, _WIDEST)
    lines = [f"{_word('usage', lang)}paddlecloud COMMAND [--key=value ...]", ""]
    lines += wrap(_word("about", lang), columns)
    space = max(len(name) for _, names in registry.FIRST for name in names)
    for title, names in registry.FIRST:
        lines += ["", pick(title, lang)]
        for name in names:
            lines += _pair(name, pick(registry.purpose(name), lang), space, columns)
    lines += ["", _word("example", lang), *_example(_FIRST_EXAMPLE, columns)]
    lines += ["", *wrap(_word("more", lang), columns)]
    return "\n".join(lines)


def everything(lang: str, columns: int = 80) -> str:
    """What `paddlecloud help all` prints."""
    columns = min(columns, _WIDEST)
    lines = [f"{_word('usage', lang)}paddlecloud COMMAND [--key=value ...]"]
    space = max(len(name) for _, table in registry.SECTIONS for name, _, _ in table)
    for title, table in registry.SECTIONS:
        lines += ["", pick(title, lang)]
        for name, _, text in table:
            lines += _pair(name, pick(text, lang), space, columns)
    lines += ["", *wrap(_word("each", lang), columns)]
    return "\n".join(lines)


def group(name: str, lang: str, columns: int = 80) -> str:
    """What `paddlecloud GROUP --help` prints."""
    columns = min(columns, _WIDEST)
    lines = [f"{_word('usage', lang)}paddlecloud {name} COMMAND [--key=value ...]", ""]
    rows = [
        (full, text)
        for _, table in registry.SECTIONS
        for full, _, text in table
        if full.startswith(name + " ")
    ]
    space = max(len(full) for full, _ in rows)
    for full, text in rows:
        lines += _pair(full, pick(text, lang), space, columns)
    return "\n".join(lines)


def command(described: Command, lang: str, columns: int = 80) -> str:
    """What `paddlecloud COMMAND --help` prints."""
    columns = min(columns, _WIDEST)
    lines = wrap(f"{_word('usage', lang)}{usage(described)}", columns, "    ")
    lines += ["", *wrap(pick(described.help, lang), columns)]
    for title, options in option_groups(described):
        lines += ["", pick(title, lang)]
        for option in options:
            lines += _pair(spelling(option), explanation(option, lang), _FLAGS, columns)
    lines += ["", _word("examples" if len(described.examples) > 1 else "example", lang)]
    for example in described.examples:
        lines += _example(example, columns)
    return "\n".join(lines)


def option_groups(described: Command) -> list[tuple[Text, list[Option]]]:
    """The headings of a command's options, and the options below each."""
    by_name = {option.name: option for option in described.options}
    groups = [
        (title, [by_name.pop(name) for name in names if name in by_name])
        for title, names in described.groups
    ]
    rest = _WORDS["other_options" if groups else "options"]
    return [*groups, (rest, list(by_name.values()))]


def _pair(left: str, text: str, space: int, columns: int) -> list[str]:
    """A name and its explanation in two columns."""
    indent = " " * (space + 4)
    lines = [] if len(left) <= space else [f"  {left}"]
    shown = f"  {left:<{space}}  " if not lines else indent
    first, *more = cut(text, max(columns - len(indent), 20))
    return [*lines, shown + first, *(indent + line for line in more)]


def _example(example: str, columns: int) -> list[str]:
    """A command that can be copied, also where it needs several lines."""
    if width(example) + 2 <= columns:
        return [f"  {example}"]
    lines, line = [], " "
    for word in _shell_words(example):
        if len(line) > 6 and width(line) + 1 + width(word) + 2 > columns:
            lines.append(line + " \\")
            line = "     "
        line += " " + word
    return [*lines, line]


def _shell_words(command_line: str) -> list[str]:
    """The words of a command line with their quotation marks."""
    words: list[str] = []
    word = ""
    for part in command_line.split(" "):
        word = f"{word} {part}" if word else part
        if word.count('"') % 2 or word.count("'") % 2:
            continue
        if words and words[-1].startswith("-") and "=" not in words[-1] and word[0] != "-":
            words[-1] += f" {word}"  # a flag and its value
        else:
            words.append(word)
        word = ""
    return words


def usage(described: Command) -> str:
    named = (o.metavar for o in described.options if o.name == described.operand)
    operand = described.words or next(named, "")
    rest = f"-- {described.rest.upper()} ..." if described.rest else ""
    words = ("paddlecloud", described.name, operand, "[--key=value ...]", rest)
    return " ".join(filter(None, words))


def spelling(option: Option) -> str:
    """`-w, --worker=NAME`, `--scope=full|read`."""
    short = f"-{option.short}, " if option.short else ""
    return short + option.flag + ("" if option.kind == "flag" else f"={_metavar(option)}")


def _metavar(option: Option) -> str:
    """The choices themselves where they are few and nothing better is given."""
    choices = "|".join(option.choices)
    is_plain = option.metavar == option.name.upper()
    return choices if choices and is_plain and len(choices) <= _FEW else option.metavar


def explanation(option: Option, lang: str) -> str:
    """The sentence about an option: whether it has to be given, its default and its choices."""
    text = pick(option.help, lang)
    choices = _choices(option, text)
    default = option.default or option.shown_default
    if isinstance(default, tuple):
        default = pick(default, lang)
    shown = default not in (None, False, "")
    if lang == "zh":
        required = f"（{_word('required', lang)}）" if option.required else ""
        assumed = f"（{_word('default', lang)}：{default}）" if shown else ""
        listed = f"；{_word('one_of', lang)}：{'、'.join(choices)}" if choices else ""
        return f"{text}{required}{assumed}{listed}"
    required = f" ({_word('required', lang)})" if option.required else ""
    listed = f"; {_word('one_of', lang)} {', '.join(choices)}" if choices else ""
    assumed = f" ({_word('default', lang)}: {default})" if shown else ""
    return f"{text}{required}{listed}{assumed}"


def pick(text: Text, lang: str) -> str:
    """The one of two texts that the reader understands."""
    return text[1] if lang == "zh" else text[0]


def _choices(option: Option, text: str) -> list[str]:
    """The values to list: none that the sentence names already, and one spelling of each."""
    choices = option.choices or option.offers
    if "|" in _metavar(option) or all(choice in text for choice in choices):
        return []
    return [
        choice for choice in choices if choice.replace(" ", "_") not in choices or " " not in choice
    ]


def _word(key: str, lang: str) -> str:
    return pick(_WORDS[key], lang)
