"""A user's own storage: what `bos_url` may be, and what is said of keys that are missing or wrong.

The S3 server of the tests stands in for Baidu's S3 door; only the address differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused, Unreachable
from paddlecloud.model.files.etag import md5_of
from paddlecloud.stores import user_bucket
from paddlecloud.stores.directory.safe_open import split
from paddlecloud.stores.s3._client import Answer, Request
from paddlecloud.stores.s3.sigv4 import Keys
from paddlecloud.stores.s3.store import PROBE
from paddlecloud.stores.user_bucket import (
    BosLocation,
    check_user_bucket,
    list_user_bucket,
    open_user_bucket,
    parse_bos_url,
)
from tests.contract.stores.helpers import content, paths
from tests.s3 import reader_settings

BOS_URL = "bucket-1.bj.bcebos.com/your/dir"


@pytest.mark.parametrize(
    ("bos_url", "bucket", "region", "prefix"),
    [
        ("bucket-1.bj.bcebos.com/your/dir", "bucket-1", "bj", "your/dir"),
        ("bucket-1.su.bcebos.com", "bucket-1", "su", ""),
        ("https://abc.gz.bcebos.com/d/", "abc", "gz", "d"),
        ("abc.fwh.bcebos.com/张三/数据", "abc", "fwh", "张三/数据"),
        ("paddlecloud.us-east-1.bcebos.com/exp", "paddlecloud", "us-east-1", "exp"),
    ],
)
def test_what_a_bos_url_names(bos_url: str, bucket: str, region: str, prefix: str) -> None:
    want = BosLocation(bos_url=bos_url, bucket=bucket, region=region, prefix=prefix)
    assert parse_bos_url(bos_url) == want


@pytest.mark.parametrize(
    "bos_url",
    [
        "",
        "bucket",
        "bj.bcebos.com/dir",
        "bucket.bj.bcebos.com.evil.example/dir",
        "bucket.bj.example.com/dir",
        "http://bucket.bj.bcebos.com/dir",
        "user@bucket.bj.bcebos.com/dir",
        "bucket.bj.bcebos.com:9000/dir",
        "bucket.bj.bcebos.com/../other",
        "bucket.bj.bcebos.com/a//b",
        "bucket.bj.bcebos.com/a?b=c",
        "bucket.bj.bcebos.com/a\0",
        "bucket.bj.bcebos.com//a",
        "Bucket.bj.bcebos.com/dir",
        "bucket.b j.bcebos.com/dir",
        "bucket.-bj.bcebos.com/dir",
        "bucket.bj.bcebos.com/.tmp/x",
        "bucket.bj.bcebos.com/C:/x",
        "bucket.bj.bcebos.com/a\\b",
        "169.254.169.254/latest",
    ],
)
def test_a_bos_url_that_is_none(bos_url: str) -> None:
    with pytest.raises(Invalid, match=r"{bucket}\.{region}\.bcebos\.com") as caught:
        parse_bos_url(bos_url)
    assert caught.value.code == "bos_url_format"


@given(st.text("ab./\\:\0 é-", max_size=12))
def test_every_directory_that_a_bos_url_may_name_is_one_of_a_store(directory: str) -> None:
    try:
        prefix = parse_bos_url(f"bucket.bj.bcebos.com/{directory}").prefix
    except Invalid:
        return
    assert "/".join(split(prefix) if prefix else []) == prefix


@pytest.fixture
def place(s3_settings: dict[str, str]) -> BosLocation:
    """As if the bucket of the tests were one of Baidu's."""
    return BosLocation(
        bos_url=BOS_URL, bucket=s3_settings["bucket"], region="bj", prefix=s3_settings["prefix"]
    )


def keys_of(settings: dict[str, str], **other: str) -> Keys:
    known = {"access_key": settings["access_key"], "secret_key": settings["secret_key"]}
    return Keys(**(known | other))


def test_good_keys_open_the_store(place: BosLocation, s3_settings: dict[str, str]) -> None:
    keys, door = keys_of(s3_settings), s3_settings["endpoint"]
    check_user_bucket(place, keys, endpoint=door)
    store = open_user_bucket(place, keys, endpoint=door)
    assert paths(store) == []
    store.write("output/x", [b"mine"])
    assert content(store, "output/x") == b"mine"
    store.close()


def test_a_directory_is_listed_without_what_jobs_left_there(
    place: BosLocation, s3_settings: dict[str, str]
) -> None:
    keys, door = keys_of(s3_settings), s3_settings["endpoint"]
    store = open_user_bucket(place, keys, endpoint=door)
    job = "job-" + "0" * 32
    for path in ("a", "data/b", PROBE, "output/mine", f"output/{job}/rank-0/old"):
        store.write(path, [path.encode()])
    store.close()
    found = list_user_bucket(place, keys, most=3, endpoint=door)
    assert [(stat.path, stat.size) for stat in found] == [
        ("a", 1),
        ("data/b", 6),
        ("output/mine", 11),
    ]
    assert md5_of(found[0].tag) == hashlib.md5(b"a", usedforsecurity=False).hexdigest()
    with pytest.raises(Invalid, match="more than 2 files") as caught:
        list_user_bucket(place, keys, most=2, endpoint=door)
    assert caught.value.code == "private_files_many"


def test_outputs_of_earlier_jobs_cost_nearly_nothing(
    place: BosLocation, s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, door = keys_of(s3_settings), s3_settings["endpoint"]
    store = open_user_bucket(place, keys, endpoint=door)
    store.page = 5
    own = ["a", "data/b", "data/c/d", "out/e", "outputs/f", "output-i", "output/mine/g", "output/h"]
    own += [f"张三/{i:02}" for i in range(6)]
    jobs = [f"output/job-{i:032x}/rank-0/{name}" for i in range(7) for name in "xyz"]
    for path in [*own, *jobs, PROBE]:
        store.write(path, [])
    asked: list[Request] = []
    ask = store.client.ask

    def counted(request: Request) -> Answer:
        asked.append(request)
        return ask(request)

    monkeypatch.setattr(store.client, "ask", counted)
    monkeypatch.setattr(user_bucket, "open_user_bucket", lambda *_, **__: store)
    found = list_user_bucket(place, keys, most=len(own), endpoint=door)
    assert [stat.path for stat in found] == sorted(own)
    # In vain, the directory twice, that of outputs twice, mine/, d, out/, outputs, and 张 twice.
    assert len(asked) == 11


def test_keys_that_may_only_read_are_refused(
    place: BosLocation, s3_settings: dict[str, str]
) -> None:
    with pytest.raises(Refused, match="can read and write") as caught:
        check_user_bucket(place, keys_of(reader_settings()), endpoint=s3_settings["endpoint"])
    assert caught.value.code == "private_store_denied"


def test_a_file_is_no_directory(place: BosLocation, s3_settings: dict[str, str]) -> None:
    keys, door = keys_of(s3_settings), s3_settings["endpoint"]
    store = open_user_bucket(place, keys, endpoint=door)
    store.write("run.sh", [b"true"])
    store.close()
    wrong = replace(place, prefix=f"{place.prefix}/run.sh", bos_url=f"{BOS_URL}/run.sh")
    with pytest.raises(Invalid, match=f"the one that holds it: {BOS_URL}$") as caught:
        check_user_bucket(wrong, keys, endpoint=door)
    assert caught.value.code == "private_place_file"
    check_user_bucket(place, keys, endpoint=door)


@pytest.mark.parametrize(
    ("other", "code", "hint"),
    [
        ({"access_key": ""}, "private_store_keys", "set ak and sk"),
        ({"secret_key": ""}, "private_store_keys", "set ak and sk"),
        ({"access_key": "nobody"}, "private_store_denied", "check ak and sk"),
        ({"secret_key": "not this one"}, "private_store_denied", "check ak and sk"),
    ],
)
def test_keys_that_are_missing_or_wrong(
    place: BosLocation, s3_settings: dict[str, str], other: dict[str, str], code: str, hint: str
) -> None:
    with pytest.raises(Refused, match=hint) as caught:
        check_user_bucket(place, keys_of(s3_settings, **other), endpoint=s3_settings["endpoint"])
    said = str(caught.value) + caught.value.text("zh")
    assert caught.value.code == code
    assert BOS_URL in said
    assert "not this one" not in said


def test_a_bucket_that_is_missing(place: BosLocation, s3_settings: dict[str, str]) -> None:
    nowhere = BosLocation(bos_url=BOS_URL, bucket="nothing-here", region="bj", prefix="")
    with pytest.raises(PaddleCloudError, match="bucket nothing-here does not exist in region bj"):
        check_user_bucket(nowhere, keys_of(s3_settings), endpoint=s3_settings["endpoint"])


def test_a_region_that_does_not_answer(place: BosLocation, s3_settings: dict[str, str]) -> None:
    with pytest.raises(Unreachable, match="check the region") as caught:
        check_user_bucket(place, keys_of(s3_settings), endpoint="http://127.0.0.1:9")
    assert caught.value.code == "private_store_unreachable"
