"""Opens, checks and lists a user's own bucket, given as `bos_url` with the user's keys.

Requests go only to the S3 endpoint of the region in `bos_url` (from a setting), so a job cannot
make the server connect anywhere else. Storing the keys and using the bucket for a job is the
caller's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from paddlecloud.messages import CAUSE, GIVEN
from paddlecloud.model.diagnosis.reasons import wrong_bos_url
from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused, Unreachable
from paddlecloud.model.files.bos_url import fault_of, split_bos_url
from paddlecloud.model.files.etag import is_ours
from paddlecloud.net.proxy import DIRECT, Proxies
from paddlecloud.stores.base import Stat
from paddlecloud.stores.directory.safe_open import shown
from paddlecloud.stores.s3 import store as s3_store
from paddlecloud.stores.s3.sigv4 import Keys

ENDPOINT = "https://s3.{region}.bcebos.com"
OUTPUTS = "output/"
"""Prefix of the outputs of jobs; there may be other files below it."""


@dataclass(frozen=True, kw_only=True)
class BosLocation:
    """A parsed `bos_url`."""

    bos_url: str
    bucket: str
    region: str
    prefix: str
    """Without slashes around it; empty: the whole bucket."""


def parse_bos_url(bos_url: str) -> BosLocation:
    """Parse {bucket}.{region}.bcebos.com/your/dir; Invalid if it has another form."""
    found, fault = split_bos_url(bos_url), fault_of(bos_url)
    if fault is not None:
        raise wrong_bos_url(shown(bos_url), *fault)
    assert found is not None
    bucket, region, prefix = found
    return BosLocation(bos_url=bos_url, bucket=bucket, region=region, prefix=prefix)


def open_user_bucket(
    place: BosLocation, keys: Keys, *, endpoint: str = ENDPOINT, proxies: Proxies = DIRECT
) -> s3_store.S3Store:
    """Open the store without a request. Refused if keys are missing.

    `endpoint` is the URL of the S3 server, with `{region}`.
    """
    if not keys.access_key or not keys.secret_key:
        raise Refused("private_store_keys", bos_url=place.bos_url)
    return s3_store.open_bucket(
        s3_store.Bucket(
            endpoint=_address(place, endpoint),
            bucket=place.bucket,
            keys=keys,
            region=place.region,
            prefix=place.prefix,
            proxies=proxies,
        )
    )


def check_user_bucket(
    place: BosLocation, keys: Keys, *, endpoint: str = ENDPOINT, proxies: Proxies = DIRECT
) -> None:
    """Check the keys: list one name, write an empty file, stat it and delete it again.

    Raises Refused (wrong keys, no permission to write or read, no such bucket), Unreachable, or
    Invalid if it is not a directory.
    """
    with user_bucket_errors(place, endpoint):
        store = open_user_bucket(place, keys, endpoint=endpoint, proxies=proxies)
        try:
            if store.is_file():
                # Outputs below it would make the parent directory unusable for jobs.
                above = place.bos_url.strip("/").rpartition("/")[0]
                raise Invalid("private_place_file", bos_url=place.bos_url, above=above)
            store.try_keys()
        finally:
            store.close()


def list_user_bucket(
    place: BosLocation,
    keys: Keys,
    *,
    most: int,
    endpoint: str = ENDPOINT,
    proxies: Proxies = DIRECT,
) -> list[Stat]:
    """Every file of the directory except outputs of earlier jobs; Invalid if there are more than
    `most`."""
    found: list[Stat] = []
    with user_bucket_errors(place, endpoint):
        store = open_user_bucket(place, keys, endpoint=endpoint, proxies=proxies)
        try:
            for stat in _own_files(store):
                if stat.path != s3_store.PROBE:
                    found.append(stat)
                if len(found) > most:
                    raise Invalid("private_files_many", bos_url=place.bos_url, limit=most)
        finally:
            store.close()
    return sorted(found, key=lambda stat: stat.path)


@contextmanager
def user_bucket_errors(place: BosLocation, endpoint: str = ENDPOINT) -> Iterator[None]:
    """Translates store errors into messages with the user's `bos_url`."""
    try:
        yield
    except PaddleCloudError as error:
        raise _explained(place, error, endpoint) from error


def _own_files(store: s3_store.S3Store) -> Iterator[Stat]:
    """Every file except outputs of jobs, in any order. Outputs grow with every submit, so where one
    request does not list everything, only their directories are listed."""
    few = store.listed_at_once()
    if few is not None:
        yield from (stat for stat in few if not is_ours(stat.path))
        return
    beginnings: set[str] = set()
    for entry in store.level():
        if isinstance(entry, Stat):
            yield entry
        elif entry == OUTPUTS:
            for output in store.level(OUTPUTS):
                if isinstance(output, Stat):
                    yield output
                elif not is_ours(output):
                    yield from store.listed(output)
        else:
            # The shortest prefix that is none of `OUTPUTS`: one listing covers many directories.
            prefixes = (entry[:length] for length in range(1, len(entry) + 1))
            beginnings.add(next(each for each in prefixes if not OUTPUTS.startswith(each)))
    for beginning in beginnings:
        yield from (stat for stat in store.listed(beginning) if "/" in stat.path)


def _address(place: BosLocation, endpoint: str) -> str:
    return endpoint.replace("{region}", place.region)


def _explained(place: BosLocation, error: PaddleCloudError, endpoint: str) -> PaddleCloudError:
    bos_url, detail = place.bos_url, str(error.params.get("detail", ""))
    if error.code == "store_denied":
        return Refused("private_store_denied", bos_url=bos_url, keys="[bos]", detail=detail)
    if error.code == "store_bucket_missing":
        return Refused(
            "private_store_no_bucket", bos_url=bos_url, bucket=place.bucket, region=place.region
        )
    host = urlsplit(_address(place, endpoint)).netloc.rpartition("@")[2]
    if error.code == "store_stranger":
        came = str(error.params.get("came", ""))
        return Unreachable("private_store_stranger", bos_url=bos_url, host=host, came=came)
    if error.code == "store_unreachable":
        why = {
            name: error.params[name] for name in ("reason", CAUSE, GIVEN) if name in error.params
        }
        return Unreachable("private_store_unreachable", bos_url=bos_url, host=host, **why)
    return error
