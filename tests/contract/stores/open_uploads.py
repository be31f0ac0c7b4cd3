"""The multipart uploads that are open in a bucket, for tests that leave none, or one."""

from __future__ import annotations

from datetime import datetime

from paddlecloud.stores.s3 import _multipart as multipart
from paddlecloud.stores.s3.store import S3Store


def open_uploads(store: S3Store, path: str) -> list[tuple[str, datetime]]:
    """Of this file: the id of each, and when it began."""
    key = store.key(path)
    found = multipart.listed_uploads(store.client, key)
    return [(upload, began) for keys, upload, began in found if key in keys]
