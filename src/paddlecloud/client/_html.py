"""Jobs as HTML tables, which notebooks show instead of `repr`."""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

COLUMNS = ("job_id", "job_name", "job_status", "create_time", "start_time", "finish_time")
#: Why it failed or waits, in the last column of a list.
_REASONS = ("error_msg", "queue_reason")


def job(view: Mapping[str, Any]) -> str:
    """One row for each key that has a value."""
    rows = (_row("th", (key,)) + _row("td", (value,)) for key, value in view.items() if value)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def jobs(views: Iterable[Mapping[str, Any]]) -> str:
    """One row for each job."""
    rows = [_row("th", (*COLUMNS, "reason"))]
    for view in views:
        reason = next((view[key] for key in _REASONS if view.get(key)), "")
        rows.append(_row("td", (*(view.get(key) or "" for key in COLUMNS), reason)))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _row(kind: str, cells: Iterable[object]) -> str:
    return "".join(
        f'<{kind} style="text-align: left">{escape(str(cell))}</{kind}>' for cell in cells
    )
