"""Opens the place where files are kept, from the settings: a directory, or a bucket besides.

A server whose keys or bucket are wrong does not start; one whose bucket does not answer at the
moment does, and works when it answers again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from paddlecloud.model.errors import PaddleCloudError, Retry
from paddlecloud.server.settings import Settings
from paddlecloud.stores.base import Store
from paddlecloud.stores.directory.store import DirectoryStore

if TYPE_CHECKING:
    from paddlecloud.stores.s3.store import S3Store

log = logging.getLogger(__name__)


def open_store(settings: Settings, *, shared: bool) -> Store:
    """`shared`: other servers write to the same directory."""
    directory = DirectoryStore(settings.store_dir, shared=shared)
    if settings.store.kind == "directory":
        return directory
    from paddlecloud.stores.layered import LayeredStore  # noqa: PLC0415 - 20 ms of http and xml

    bucket = open_bucket(settings)
    try:
        bucket.try_keys()
    except Retry as error:
        log.warning("the server starts without its bucket: %s", error)
    except PaddleCloudError:
        bucket.close()
        directory.close()
        raise
    return LayeredStore(directory, bucket)


def open_bucket(settings: Settings) -> S3Store:
    """The bucket that the settings name; nothing is asked of it yet."""
    from paddlecloud.stores.s3 import store as s3_store  # noqa: PLC0415 - 20 ms that a directory does not need
    from paddlecloud.stores.s3.sigv4 import Keys  # noqa: PLC0415 - the same

    store = settings.store
    return s3_store.open_bucket(
        s3_store.Bucket(
            endpoint=store.endpoint,
            bucket=store.bucket,
            keys=Keys(access_key=store.access_key, secret_key=store.secret_key),
            region=store.region,
            prefix=store.prefix,
            path_style=store.path_style,
            proxies=settings.proxies,
        )
    )
