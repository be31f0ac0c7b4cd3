"""An output file in parts to the bucket where it is kept, by addresses, past the server.

The server begins and ends it, so the file gets its name only while its attempt is the current one.
It is read once: what is sent is what is digested. A file that changes meanwhile is not ended, nor
one of which a part is not taken; what is left of those the server drops.
"""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING

from paddlecloud.model.errors import PaddleCloudError, Retry, Unauthenticated
from paddlecloud.model.signing import quote
from paddlecloud.runtime import outputs

if TYPE_CHECKING:
    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.direct import Buckets
    from paddlecloud.runtime.link import Channel
    from paddlecloud.runtime.outputs import Found

#: A smaller file is one request through the server, and would be three and more past it.
LEAST = 1024 * 1024
_TIMEOUT = 60.0
_TRIES = 3


def put(
    tracked: Tracked, sent: Found, file: IO[bytes], channel: Channel, buckets: Buckets
) -> str | None:
    """The sha256 of the file, which the bucket has now; None when it has to go another way.

    Retry when the server cannot be reached, or cannot reach the bucket.
    """
    path = f"/agent/replicas/{quote(tracked.id)}/parts/{quote(sent.name, '/')}"
    query = {"fence": tracked.fence}
    begin = {"size": sent.size, "mtime": round(sent.mtime, 6)}
    try:
        given = channel.json("POST", path, begin, query, _TIMEOUT)
        digest = _put_parts(sent, file, given, buckets) if given.get("upload") else None
        if digest is None or outputs.found_again(sent, file).mark != sent.mark:
            return None
        end = {"upload": given["upload"], "size": sent.size}
        channel.json("PUT", path, end, query, _TIMEOUT)
    except (Retry, Unauthenticated):
        raise
    except PaddleCloudError:
        return None
    return digest


def _put_parts(
    sent: Found, file: IO[bytes], given: dict[str, object], buckets: Buckets
) -> str | None:
    digest = hashlib.sha256()
    left, size = sent.size, int(str(given["part_size"]))
    addresses = given["addresses"]
    assert isinstance(addresses, list)
    for address in addresses:
        data = file.read(min(size, left))
        whole = len(data) == min(size, left)
        if not whole or not any(buckets.put(address, data) for _ in range(_TRIES)):
            return None
        digest.update(data)
        left -= len(data)
    return digest.hexdigest() if left == 0 else None
