"""Every message for users, in English and Chinese, by stable code.

`render` formats a message. The table, `tables.TEXTS`, has one module per area (`_jobs`, `_files`
...) and is loaded by the first message, because most calls of the command line print none. A
message names the value, the limit and what to do. The server stores codes and values, never texts,
so that each reader gets their own language. Scripts rely on codes: never rename one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LANGUAGES = ("en", "zh")
CAUSE, GIVEN, MORE = "cause", "given", "more"
"""Parameters for a message within a message: its code, its values (JSON, see
`model.diagnosis.reasons`), and a list of further ones about other files."""
_OF_FILES = ("unsent_each", "unsent_given_up", "unsent_kept")
"""Messages that name files before their reason."""
_REASONS = frozenset(("detail", "reason", "why"))
"""Parameters that may be error texts of the operating system."""


class Words(str):
    """An English text with its Chinese translation, as a parameter of a message. Only for messages
    that are rendered in the same process; stored and sent messages use codes."""

    zh = ""


def words(code: str, /, **params: object) -> Words:
    """The message for `code` as a parameter of another one."""
    return both(render(code, params, "en"), render(code, params, "zh"))


def both(english: str, chinese: str) -> Words:
    """A parameter with these texts in the two languages."""
    found = Words(english)
    found.zh = chinese
    return found


def joined(parts: Iterable[str], between: str = ", ") -> Words:
    """Joins several parameters to one."""
    found = [*parts]
    return both(between.join(found), between.join(getattr(part, "zh", part) for part in found))


def localized(params: Mapping[str, object], lang: str) -> Mapping[str, object]:
    """The parameters in this language."""
    if lang != "zh":
        return params
    from paddlecloud.messages._os_errors_zh import SYSTEM_TEXTS  # noqa: PLC0415 - only Chinese needs it

    found = {name: getattr(value, "zh", value) for name, value in params.items()}
    for name in _REASONS & found.keys():
        found[name] = SYSTEM_TEXTS.get(str(found[name]), found[name])
    return found


def render(code: str, params: Mapping[str, object], lang: str) -> str:
    """The message for `code`; an unknown code or a missing value never raises."""
    from paddlecloud.messages.tables import TEXTS  # noqa: PLC0415 - a tenth of the time of query_job

    texts = TEXTS.get(code)
    if GIVEN in params and CAUSE in params:
        it = _it(params, lang) if code in _OF_FILES else None
        inner = _inner(str(params[CAUSE]), str(params[GIVEN]), lang, it)
        params = {**params, "reason": inner, "message": inner}
    if MORE in params:
        params = {**params, "files": _more(str(params[MORE]), str(params.get("files")), lang)}
    if texts is None:
        return f"{code}: " + ", ".join(f"{key}={value}" for key, value in params.items())
    sentence = texts[1] if lang == "zh" else texts[0]
    try:
        return sentence.format_map(localized(params, lang))
    except (KeyError, ValueError, IndexError, TypeError):
        return f"{sentence} ({dict(params)})"


def _it(params: Mapping[str, object], lang: str) -> str:
    """What replaces a path that the outer message has just named."""
    return render("unsent_first" if str(params.get("count", 1)) != "1" else "unsent_it", {}, lang)


def _inner(code: str, given: str, lang: str, it: str | None = None) -> str:
    found = _loaded(given)
    values = found if isinstance(found, dict) else {}
    if it is None or "path" not in values:
        return render(code, values, lang)
    found = render(code, {**values, "path": it}, lang)
    # Chinese has spaces around a path, but not around a pronoun.
    return found.replace(f" {it}", it).replace(f"{it} ", it) if lang == "zh" else found


def _more(rows: str, files: str, lang: str) -> str:
    """The files, preceded by those of further reasons, each with its reason."""
    found = _loaded(rows)
    for row in found if isinstance(found, list) else []:
        if isinstance(row, dict):
            files = render("unsent_each", {**row, "rest": files}, lang)
    return files


def _loaded(text: str) -> object:
    import json  # noqa: PLC0415 - the command line starts with this file

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
