"""A user's own storage: opened from `bos_url` and the user's keys, and tried before it is used.

Only the S3 door of the region that `bos_url` names is ever spoken to (a setting says where doors
are), so a job cannot send the server anywhere else. Keeping the keys, and what a job does with this
store, is the caller's work.
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

DOOR = "https://s3.{region}.bcebos.com"
OUTPUTS = "output/"
"""Below which jobs have their outputs, among other files."""


@dataclass(frozen=True, kw_only=True)
class BosPlace:
    """What `bos_url` names."""

    bos_url: str
    bucket: str
    region: str
    prefix: str
    """Without slashes around it; empty: the whole bucket."""


def parse_bos_url(bos_url: str) -> BosPlace:
    """{bucket}.{region}.bcebos.com/your/dir; Invalid when it is anything else."""
    found, fault = split_bos_url(bos_url), fault_of(bos_url)
    if fault is not None:
        raise wrong_bos_url(shown(bos_url), *fault)
    assert found is not None
    bucket, region, prefix = found
    return BosPlace(bos_url=bos_url, bucket=bucket, region=region, prefix=prefix)


def open_private(
    place: BosPlace, keys: Keys, *, door: str = DOOR, proxies: Proxies = DIRECT
) -> s3_store.S3Store:
    """The store at this place; nothing is asked of it yet. Refused when keys are missing.

    `door` is the address of the S3 server of a region.
    """
    if not keys.access_key or not keys.secret_key:
        raise Refused("private_store_keys", bos_url=place.bos_url)
    return s3_store.open_bucket(
        s3_store.Bucket(
            endpoint=_address(place, door),
            bucket=place.bucket,
            keys=keys,
            region=place.region,
            prefix=place.prefix,
            proxies=proxies,
        )
    )


def check_private(
    place: BosPlace, keys: Keys, *, door: str = DOOR, proxies: Proxies = DIRECT
) -> None:
    """Try the keys: list one name, write an empty file, look at it and delete it again.

    Refused (wrong keys, no right to write or read, no such bucket) or Unreachable, in the user's
    terms; Invalid when it is no directory.
    """
    with in_terms_of(place, door):
        store = open_private(place, keys, door=door, proxies=proxies)
        try:
            if store.is_file():
                # Outputs below it would make a file of the directory above one that no job takes.
                above = place.bos_url.strip("/").rpartition("/")[0]
                raise Invalid("private_place_file", bos_url=place.bos_url, above=above)
            store.try_keys()
        finally:
            store.close()


def list_private(
    place: BosPlace, keys: Keys, *, most: int, door: str = DOOR, proxies: Proxies = DIRECT
) -> list[Stat]:
    """Every file of the directory but those that jobs of before left there; Invalid when there are
    more than `most`."""
    found: list[Stat] = []
    with in_terms_of(place, door):
        store = open_private(place, keys, door=door, proxies=proxies)
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
def in_terms_of(place: BosPlace, door: str = DOOR) -> Iterator[None]:
    """What goes wrong with this store is told in terms of its owner."""
    try:
        yield
    except PaddleCloudError as error:
        raise _explained(place, error, door) from error


def _own_files(store: s3_store.S3Store) -> Iterator[Stat]:
    """Every file but outputs of jobs, in any order. There are more of these with every submit, so
    where one request does not tell all, only their directories are listed."""
    few = store.listed_at_once()
    if few is not None:
        yield from (stat for stat in few if not is_ours(stat.path))
        return
    beginnings: set[str] = set()
    for entry in store.level():
        if isinstance(entry, Stat):
            yield entry
        elif entry == OUTPUTS:
            yield from _own_outputs(store)
        else:
            beginnings.add(_beside_outputs(entry))
    for beginning in beginnings:
        yield from (stat for stat in store.listed(beginning) if "/" in stat.path)


def _own_outputs(store: s3_store.S3Store) -> Iterator[Stat]:
    for entry in store.level(OUTPUTS):
        if isinstance(entry, Stat):
            yield entry
        elif not is_ours(entry):
            yield from store.listed(entry)


def _beside_outputs(directory: str) -> str:
    """As few letters of it as no output begins with: many directories are one list."""
    beginnings = (directory[:length] for length in range(1, len(directory) + 1))
    return next(letters for letters in beginnings if not OUTPUTS.startswith(letters))


def _address(place: BosPlace, door: str) -> str:
    return door.replace("{region}", place.region)


def _explained(place: BosPlace, error: PaddleCloudError, door: str) -> PaddleCloudError:
    bos_url, detail = place.bos_url, str(error.params.get("detail", ""))
    if error.code == "store_denied":
        return Refused("private_store_denied", bos_url=bos_url, keys="[bos]", detail=detail)
    if error.code == "store_bucket_missing":
        return Refused(
            "private_store_no_bucket", bos_url=bos_url, bucket=place.bucket, region=place.region
        )
    host = urlsplit(_address(place, door)).netloc.rpartition("@")[2]
    if error.code == "store_stranger":
        came = str(error.params.get("came", ""))
        return Unreachable("private_store_stranger", bos_url=bos_url, host=host, came=came)
    if error.code == "store_unreachable":
        why = {
            name: error.params[name] for name in ("reason", CAUSE, GIVEN) if name in error.params
        }
        return Unreachable("private_store_unreachable", bos_url=bos_url, host=host, **why)
    return error
