"""Nested reasons: a reason whose cause is another reason.

Both are stored as code and values and rendered in the reader's language (`messages.render`). The
inner one is stored in two values of the outer one, because values are plain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from paddlecloud.messages import CAUSE, GIVEN, MORE
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.job import Reason

_LONGEST = 4_000
_CUT = 150
_MOST_MORE = 4
_UNREAD = frozenset({"output_hollow", "output_unreadable"})
_NAMES = frozenset({"path_deep", "path_encoding", "path_long", "path_unsafe", "store_path_long"})


def caused(code: str, cause: str, given: Mapping[str, object], **params: str | int) -> Reason:
    """The reason `code` caused by the reason `cause` with the values `given`, which are truncated
    if they are very long."""
    text = json.dumps(given, default=str)
    if len(text) > _LONGEST:
        cut = {key: str(value) for key, value in given.items()}
        for key, value in cut.items():
            # The values of a further nested reason must stay valid JSON.
            if key not in (GIVEN, MORE) or len(value) > _LONGEST:
                cut[key] = value[:_CUT]
        text = json.dumps(cut)
    return Reason(code=code, params={**params, CAUSE: cause, GIVEN: text})


def together(reasons: list[Reason]) -> Reason:
    """One reason for files that failed for several reasons, each listed with its own files. Older
    servers show only the first."""
    first, *others = reasons
    if not others:
        return first
    keys = ("files", "count", "reason", CAUSE, GIVEN)
    rows = [{key: one.params[key] for key in keys if key in one.params} for one in others]
    while len(json.dumps(rows)) > _LONGEST or len(rows) > _MOST_MORE:
        rows.pop()
    return Reason(code=first.code, params={**first.params, MORE: json.dumps(rows)})


def blames_no_store(code: str) -> bool:
    """Whether this reason is independent of the store: the output could not be read, or has an
    invalid name."""
    return code in _UNREAD or code in _NAMES


def of_unsent(params: Mapping[str, object], *, own_bucket: bool) -> str:
    """The code of the reason for unsent outputs; `params` are the values of the inner reason."""
    if blames_no_store(str(params.get(CAUSE))):
        return "outputs_not_sent"
    return "outputs_unsent" if own_bucket else "outputs_untaken"


def wrong_bos_url(value: str, fault: str, given: Mapping[str, object]) -> Invalid:
    """The error for an invalid bos_url (`bos_url.fault_of`)."""
    whole = caused("bos_url_format", fault, given, value=value)
    return Invalid(whole.code, **whole.params)
