"""Tables for people: columns that fit the terminal.

A column that is too wide is wrapped where it allows that; then the columns are dropped that matter
least. Pipes and `--json` have everything, so nothing is lost.
"""

from __future__ import annotations

from paddlecloud.cli._text_width import clip, cut, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddlecloud.cli.output import Output
    from paddlecloud.cli.parser import Text

_GAP = 2
_MOST_LINES = 3
"""Of a cell that is wrapped; the rest is in `query_job`."""
_NARROWEST = 8
_INDENT = "  "


class Column:
    """One column. `kind` is "state" (translated and coloured), "job" (the id is shortened), "note"
    (goes below the row where there is no space beside it) or nothing. The column with the largest
    `drop` is the first to go, one with 0 stays; `least` is the width to which it may be wrapped."""

    __slots__ = ("drop", "kind", "least", "title")

    def __init__(self, title: Text | str, kind: str = "", *, drop: int = 0, least: int = 0) -> None:
        self.title = (title, title) if isinstance(title, str) else title
        self.kind = kind
        self.drop = drop
        self.least = least


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], out: Output) -> list[str]:
    """The header and the rows in the width of the terminal, with colours."""
    texts = _translated(columns, rows, out)
    titles = [column.title[out.lang == "zh"] for column in columns]
    natural = [max(map(width, cells)) for cells in zip(titles, *texts, strict=True)]
    shown = _fitted(columns, titles, dict(enumerate(natural)), out.columns)
    below = [
        place
        for place, column in enumerate(columns)
        if column.kind == "note" and place not in shown
    ]
    wrapped: dict[tuple[str, int], list[str]] = {}

    def cell(text: str, place: int, space: int) -> list[str]:
        # Many jobs wait for the same reason.
        if (text, place) not in wrapped:
            wrapped[text, place] = _cell(text, columns[place], space)
        return wrapped[text, place]

    header = [titles[place] for place in shown]
    found = [out.paint(_aligned(header, header, shown), "dim")]
    for row, text in zip(rows, texts, strict=True):
        cells = [cell(text[place], place, space) for place, space in shown.items()]
        for number in range(max(map(len, cells))):
            parts = [each[number] if number < len(each) else "" for each in cells]
            painted = [
                out.paint_state(part, row[place]) if columns[place].kind == "state" else part
                for part, place in zip(parts, shown, strict=True)
            ]
            found.append(_aligned(parts, painted, shown))
        for place in below:
            space = out.columns - len(_INDENT)
            notes = cell(text[place], place, space) if text[place] else ()
            found += [_INDENT + note for note in notes]
    return found


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Each id by its first 8 digits (`job-ed027fe3`), or as many as these ids need to differ."""
    digits = 8
    while True:
        found = {each: each[: 4 + digits] for each in ids}
        if len(set(found.values())) == len(found) or digits >= 32:
            return found
        digits += 4


def _translated(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], out: Output
) -> list[list[str]]:
    """The rows with short ids and translated states."""
    texts = [list(row) for row in rows]
    for place, column in enumerate(columns):
        if column.kind == "job":
            short = short_ids([row[place] for row in rows])
            for text in texts:
                text[place] = short[text[place]]
        elif column.kind == "state":
            for text in texts:
                text[place] = out.state_name(text[place])
    return texts


def _fitted(
    columns: Sequence[Column], titles: Sequence[str], natural: Mapping[int, int], space: int
) -> dict[int, int]:
    """The columns that are shown, by their places, and the width of each."""
    shown = dict(natural)
    while True:
        over = sum(shown.values()) + _GAP * (len(shown) - 1) - space
        for place in reversed(shown):
            least = max(columns[place].least, width(titles[place]))
            if over > 0 and columns[place].least and shown[place] > least:
                given = min(over, shown[place] - least)
                shown[place] -= given
                over -= given
        if over <= 0:
            return shown
        last = max(shown, key=lambda place: columns[place].drop)
        rest = {place: natural[place] for place in shown if place != last}
        if columns[last].kind == "note":  # with more space the others may all fit
            rest = {place: size for place, size in natural.items() if place != last}
            return _fitted(columns, titles, rest, space)
        if not columns[last].drop:
            return _squeezed(shown, titles, over)
        shown = rest


def _squeezed(shown: dict[int, int], titles: Sequence[str], over: int) -> dict[int, int]:
    """The same columns, the widest of them broken wherever that is."""
    while over > 0:
        widest = max(shown, key=lambda place: shown[place])
        given = min(over, shown[widest] - max(_NARROWEST, width(titles[widest])))
        if given <= 0:
            return shown
        shown[widest] -= given
        over -= given
    return shown


def _cell(text: str, column: Column, space: int) -> list[str]:
    if width(text) <= space:
        return [text]
    parts = cut(text, space)
    if (column.least or column.kind == "note") and len(parts) > _MOST_LINES:
        parts = parts[:_MOST_LINES]
        parts[-1] = clip(parts[-1], space - 1) + "…"
    return parts


def _aligned(texts: Sequence[str], painted: Sequence[str], shown: Mapping[int, int]) -> str:
    """One line; `painted` are the texts with their colours, which take no space."""
    cells = [
        colourful + " " * (space - width(text))
        for text, colourful, space in zip(texts, painted, shown.values(), strict=True)
    ]
    return (" " * _GAP).join(cells).rstrip()
