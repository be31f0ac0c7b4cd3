"""A real S3 server for tests: one for a run of tests, a directory in its bucket for each test.

Where none can be had, tests that need one are skipped with one line that says what is missing.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from paddlecloud.stores import create
from paddlecloud.stores.s3.store import S3Store
from scripts import s3
from tests.shared_server import shared_server

_numbers = itertools.count(1)


@pytest.fixture
def s3_settings() -> dict[str, str]:
    """Settings of a store in a directory of the bucket that no other test uses."""
    return fresh_settings()


@pytest.fixture
def bucket(s3_settings: dict[str, str]) -> Iterator[S3Store]:
    """The store in that directory."""
    store = create("s3", s3_settings)
    assert isinstance(store, S3Store)
    yield store
    store.close()


@pytest.fixture
def s3_place() -> Iterator[Path]:
    """The directory of a running server of the test's own, to be stopped and started at will."""
    with tempfile.TemporaryDirectory(prefix="paddlecloud-s3-", ignore_cleanup_errors=True) as name:
        place = Path(name) / "server"
        try:
            s3.start(place)
        except s3.Missing as error:
            pytest.skip(f"no S3 server for this test: {error}")
        yield place
        s3.stop(place)


def fresh_settings() -> dict[str, str]:
    return {**s3.show(_server()), "prefix": f"test-{os.getpid()}-{next(_numbers)}"}


def reader_settings() -> dict[str, str]:
    """The same server with keys that may not write."""
    return s3.show_lesser(_server(), "reader")


def writer_settings() -> dict[str, str]:
    """The same server with keys that may not read."""
    return s3.show_lesser(_server(), "writer")


@cache
def _server() -> Path:
    try:
        s3.find_program()
    except s3.Missing as error:
        pytest.skip(f"no S3 server for this test: {error}")
    return shared_server(s3.__file__, "S3 server", mode=0o700)
