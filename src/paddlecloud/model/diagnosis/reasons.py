"""A sentence within a sentence: why something is so, and why that is so in turn.

Both are kept as code and values, and put into words when somebody reads them, in that person's
language (`texts.render`). The inner one is kept in two values of the outer one, because values are
plain.
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


def caused(code: str, cause: str, given: Mapping[str, object], **told: str | int) -> Reason:
    """The sentence `code`, whose `reason`, or `message`, is the sentence `cause` with the values
    `given`; these are cut where they are very long."""
    text = json.dumps(given, default=str)
    if len(text) > _LONGEST:
        cut = {key: _cut(key, value) for key, value in given.items()}
        text = json.dumps(cut)
    return Reason(code=code, params={**told, CAUSE: cause, GIVEN: text})


def together(reasons: list[Reason]) -> Reason:
    """One sentence about files of several reasons, each of them beside its own files: that of the
    first, which an older server tells alone."""
    first, *others = reasons
    if not others:
        return first
    keys = ("files", "count", "reason", CAUSE, GIVEN)
    rows = [{key: one.params[key] for key in keys if key in one.params} for one in others]
    while len(json.dumps(rows)) > _LONGEST or len(rows) > _MOST_MORE:
        rows.pop()
    return Reason(code=first.code, params={**first.params, MORE: json.dumps(rows)})


def blames_no_store(code: str) -> bool:
    """Whether no store was asked to take an output, for this reason: it was not even read, or its
    name is none that any store is given."""
    return code in _UNREAD or code in _NAMES


def of_unsent(told: Mapping[str, object], *, own_bucket: bool) -> str:
    """The sentence that begins with who did not take some outputs; `told` are the values of the one
    about what became of them."""
    if blames_no_store(str(told.get(CAUSE))):
        return "outputs_not_sent"
    return "outputs_unsent" if own_bucket else "outputs_untaken"


def wrong_bos_url(value: str, fault: str, given: Mapping[str, object]) -> Invalid:
    """That a bos_url is none, and why (`bosurl.fault_of`)."""
    whole = caused("bos_url_format", fault, given, value=value)
    return Invalid(whole.code, **whole.params)


def _cut(key: str, value: object) -> str:
    """Half of the values of a third sentence within it would be none at all."""
    text = str(value)
    return text if key in (GIVEN, MORE) and len(text) <= _LONGEST else text[:_CUT]
