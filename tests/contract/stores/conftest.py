"""Every kind of store that is found in the package, empty; the S3 one on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.stores import Store, create, kinds
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.s3.store import S3Store
from tests.s3 import fresh_settings


@pytest.fixture(params=kinds())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    given = fresh_settings() if request.param == "s3" else {"root": str(tmp_path / "store")}
    opened = create(request.param, given)
    yield opened
    if isinstance(opened, S3Store | DirectoryStore):
        opened.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DirectoryStore]:
    opened = DirectoryStore(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def s3(bucket: S3Store) -> S3Store:
    return bucket
