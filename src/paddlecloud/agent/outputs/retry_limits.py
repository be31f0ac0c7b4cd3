"""How long an ended replica waits for something that fails, before it ends without it.

A replica that is over keeps its place until its outputs and the rest of its log are stored. What
fails is tried again, with a pause that grows, until nothing was stored for this many seconds.
"""

from __future__ import annotations

import errno
from math import inf
from typing import TYPE_CHECKING

from paddlecloud.agent.server_link.channel import is_internal_error
from paddlecloud.model.errors import Retry, Unauthenticated

if TYPE_CHECKING:
    from paddlecloud.model.errors import PaddleCloudError

#: A file server may be restarted; a disk that failed for longer has failed.
UNREADABLE_SECONDS = 120.0
#: An error of the server itself (500) that repeats for longer will not go away.
INTERNAL_ERROR_SECONDS = 600.0

_NO_PERMISSION = (errno.EACCES, errno.EPERM)
#: This process or machine lacks something, which is no fault of the file.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def retry_seconds(error: OSError | PaddleCloudError, store_timeout: float | None) -> float:
    """Seconds without progress after which trying again is pointless; 0 for an error that stays.

    `store_timeout` is how long the job waits for a store that takes nothing, None for ever. The
    order to kill a job shortens it, so it bounds every other limit.
    """
    longest = inf if store_timeout is None else store_timeout
    if isinstance(error, OSError):
        if error.errno in _NO_PERMISSION:
            return 0.0
        return longest if error.errno in _EXHAUSTED else min(UNREADABLE_SECONDS, longest)
    if is_internal_error(error):
        return min(INTERNAL_ERROR_SECONDS, longest)
    return longest if isinstance(error, Retry | Unauthenticated) else 0.0


def is_store_failure(error: OSError | PaddleCloudError) -> bool:
    """Whether the store, or the way to it, is to blame."""
    return isinstance(error, Retry | Unauthenticated) and not is_internal_error(error)
