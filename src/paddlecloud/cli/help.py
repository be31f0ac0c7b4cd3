"""Writes `--help`, of the program and of each command, from the tables in the reader's language."""

from __future__ import annotations

from paddlecloud.cli import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.parser import Command, Option, Text

_COLUMN = 18
_WORDS: dict[str, Text] = {
    "usage": ("usage", "用法"),
    "about": (
        "One command takes a directory of training code to a finished run and brings logs and "
        "models back.",
        "一条命令把训练代码目录变成一次完成的训练，并取回日志和模型。",
    ),
    "jobs": ("Jobs", "任务"),
    "system": ("The platform", "平台"),
    "admin": ("Administration", "管理"),
    "options": ("Options", "参数"),
    "examples": ("Examples", "示例"),
    "more": (
        "paddlecloud COMMAND --help describes a command. Every command takes --json.",
        "paddlecloud 命令 --help 显示该命令的用法。所有命令都支持 --json。",
    ),
    "default": ("default", "默认"),
    "one_of": ("one of", "可选"),
    "required": ("required", "必填"),
}


def program(lang: str) -> str:
    """What `paddlecloud --help` prints."""
    lines = [
        f"{_word('usage', lang)}: paddlecloud COMMAND [--key=value ...]",
        "",
        _word("about", lang),
    ]
    tables = (("jobs", registry.JOBS), ("system", registry.SYSTEM), ("admin", registry.ADMIN))
    for title, table in tables:
        lines += ["", _word(title, lang)]
        lines += [f"  {name:<{_COLUMN}} {pick(text, lang)}" for name, _, text in table]
    lines += ["", _word("examples", lang)]
    lines.append('  paddlecloud submit_job --files=job --start_cmd="sh run.sh" --watch_mode=1')
    lines += ["", _word("more", lang)]
    return "\n".join(lines)


def group(name: str, lang: str) -> str:
    """What `paddlecloud GROUP --help` prints."""
    lines = [f"{_word('usage', lang)}: paddlecloud {name} COMMAND [--key=value ...]", ""]
    for full, _, text in registry.SYSTEM + registry.ADMIN:
        if full.startswith(name + " "):
            lines.append(f"  {full:<{_COLUMN}} {pick(text, lang)}")
    return "\n".join(lines)


def command(described: Command, lang: str) -> str:
    """What `paddlecloud COMMAND --help` prints."""
    lines = [f"{_word('usage', lang)}: {usage(described)}", "", pick(described.help, lang)]
    lines += ["", _word("options", lang)]
    for option in described.options:
        shown, text = spelling(option), explanation(option, lang)
        if len(shown) > 24:
            lines.append(f"  {shown}")
            shown = ""
        lines.append(f"  {shown:<24} {text}")
    lines += ["", _word("examples", lang)]
    lines += [f"  {example}" for example in described.examples]
    return "\n".join(lines)


def usage(described: Command) -> str:
    named = (o.metavar for o in described.options if o.name == described.operand)
    operand = described.words or next(named, "")
    rest = f"-- {described.rest.upper()} ..." if described.rest else ""
    words = ("paddlecloud", described.name, operand, "[--key=value ...]", rest)
    return " ".join(filter(None, words))


def spelling(option: Option) -> str:
    """`-w, --worker=NAME`."""
    short = f"-{option.short}, " if option.short else ""
    return short + option.flag + ("" if option.kind == "flag" else f"={option.metavar}")


def explanation(option: Option, lang: str) -> str:
    """The sentence about an option: whether it has to be given, its default and its choices."""
    text = pick(option.help, lang)
    choices = _choices(option, text)
    default = option.default or option.shown_default
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
    if "|" in option.metavar or all(choice in text for choice in choices):
        return []
    return [
        choice for choice in choices if choice.replace(" ", "_") not in choices or " " not in choice
    ]


def _word(key: str, lang: str) -> str:
    return pick(_WORDS[key], lang)
