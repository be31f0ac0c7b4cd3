"""Finds the line of a log that states why its program failed.

A Python traceback states it in the line after its frames. Of other programs it is the last line
that reads like an error. Logs of training runs are full of numbers called errors, of warnings and
of failures that were handled, so a doubtful line is not taken: no cause is better than a wrong one.
"""

from __future__ import annotations

import re

MAX_LETTERS = 200
_NEAR_END = 12
"""Lines at the end of a log in which an error of another program than Python is searched."""
_AFTER_TRACEBACK = 40
"""Lines that may follow a traceback: a long message, what a shell or a launcher prints at its end.
After more of them the program has caught the exception and gone on."""
_TRACEBACK = re.compile(
    r"^(?P<prefix>.{0,80}?)(?P<group>\+ Exception Group )?Traceback \(most recent call last\):$"
)
_IGNORED = "Exception ignored in"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: |:?$)")
_RULER = re.compile(r"^[-=*\s]*$")
_SUMMARY = "Error Message Summary:"
"""In exceptions of PaddlePaddle the message follows below this heading."""
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+|nan|inf)(?:e[-+]?\d+)?%?(?:$|[\s,;|)])"
_METRIC = rf"(?!\s*(?:rate\b|[:=(]*\s*{_NUMBER}))"
_ERROR = re.compile(
    rf"""
    \b\w*(?:[Ee]rror|ERROR|Exception)(?:\[\w+\])?:{_METRIC}\s*\S      # ValueError: x, error: x
    | ^[\W_]*(?i:error|fatal|critical|panic|abort(?:ed)?)\b{_METRIC}  # [ERROR] x, Aborted
    | \b(?:ERROR|FATAL|CRITICAL|ERR!){_METRIC}                        # 10:00:00 ERROR x
    | ^[EF]\d{{4}}\ .*\]                                              # F1118 10:00:00 1 x.cc:5] x
    | \bpanicked\ at\b | ^Exception\ in\ thread\b | ^Caused\ by: | ^\s*what\(\):
    | \*\*\*\ \[?.*\]?\ Error\ \d+$
    | \b(?:[Cc]annot|[Cc]an't|[Cc]ould\ not|[Cc]ouldn't|[Uu]nable\ to|[Ff]ailed\ to)\ \w
    | \b(?:[Ff]ailed|FAILED)\b(?!\s*[:=]?\s*0\b)
    | \b[Nn]o\ such\ \w | \bnot\ found$ | \b[Pp]ermission\ denied\b | \b[Cc]onnection\ refused\b
    | \b[Oo]ut\ of\ memory\b | \bNo\ space\ left\b | \bSegmentation\ fault\b | \bcore\ dumped\b
    | 错误(?!率)(?!\s*[:：=]?\s*[\d.]+) | 失败(?!\s*[:：=]?\s*[\d.]+) | 异常 | 无法
    """,
    re.VERBOSE,
)
_HARMLESS = re.compile(
    r"\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE)\b|[Ww]arning:|\b(?:0|no|without)\s+(?:errors?|fail)"
    r"|\bretry(?:ing)?\b|\bignor(?:ed|ing)\b|警告|重试|忽略"
)


def error_line(lines: tuple[str, ...]) -> str | None:
    """The line that states the error, at most `MAX_LETTERS` long; None: no line does clearly."""
    found = _traceback(lines) or _last_error(lines[-_NEAR_END:])
    if found is None:
        return None
    found = " ".join(found.split())
    return found if len(found) <= MAX_LETTERS else found[: MAX_LETTERS - 3] + "..."


def _traceback(lines: tuple[str, ...]) -> str | None:
    """The exception of the last traceback, by its first line; of chained ones the last is raised,
    and an exception group is named before its parts."""
    for begin in range(len(lines) - 1, -1, -1):
        head = _TRACEBACK.match(lines[begin])
        if head is None or "|" in head["prefix"]:  # within a group
            continue
        if begin and lines[begin - 1].startswith(head["prefix"] + _IGNORED):
            continue  # an error of a destructor: it ends nothing
        # A launcher puts a prefix such as [rank0] before each line; a group has a margin.
        prefix = head["prefix"] + "| " if head["group"] else head["prefix"]
        body = [line.removeprefix(prefix) for line in lines[begin + 1 :]]
        at = next((i for i, line in enumerate(body) if line and not line.startswith(" ")), None)
        if at is None or len(body) - at > _AFTER_TRACEBACK or not _EXCEPTION.match(body[at]):
            return None
        return _with_message(body[at:])
    return None


def _with_message(lines: list[str]) -> str:
    """The first of these lines, completed by the next one with text if it ends with a colon."""
    first = lines[0]
    if not first.endswith(":"):
        return first
    rest = lines[1:]
    if any(_SUMMARY in line for line in rest):
        rest = rest[next(i for i, line in enumerate(rest) if _SUMMARY in line) + 1 :]
    message = next((line for line in rest if not _RULER.match(line)), "")
    return f"{first} {message}" if message else first.removesuffix(":")


def _last_error(lines: tuple[str, ...]) -> str | None:
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if _ERROR.search(line) and not _HARMLESS.search(line):
            return _with_message([line.strip(), *lines[number + 1 :]])
    return None
