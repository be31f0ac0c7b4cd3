"""The section [store]: what an object store needs, and what is refused before a server starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.model.errors import ConfigError
from paddlecloud.server.settings import Settings, read_settings

S3 = {
    "kind": '"s3"',
    "endpoint": '"https://s3.bj.bcebos.com"',
    "bucket": '"team"',
    "region": '"bj"',
    "access_key": '{ env = "AK" }',
    "secret_key": '{ file = "sk" }',
}


def read(tmp_path: Path, **changes: str) -> Settings:
    lines = [f"{key} = {value}" for key, value in (S3 | changes).items() if value]
    (tmp_path / "sk").write_text("secret key of the file\n")
    file = tmp_path / "server.toml"
    file.write_text("\n".join(["[store]", *lines]))
    return read_settings(tmp_path, file, {"AK": "access key of the environment"})


def test_a_directory_needs_nothing(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert (settings.store.kind, settings.store_dir) == ("directory", tmp_path / "store")


def test_a_bucket_with_keys_from_elsewhere(tmp_path: Path) -> None:
    store = read(tmp_path, prefix='"paddlecloud/prod"').store
    assert (store.kind, store.bucket, store.region) == ("s3", "team", "bj")
    assert store.access_key == "access key of the environment"
    assert store.secret_key == "secret key of the file"
    assert store.path_style
    assert "secret" not in repr(store)


@pytest.mark.parametrize(
    ("changes", "key", "hint"),
    [
        ({"kind": '"floppy"'}, "store.kind", "directory, s3"),
        ({"kind": ""}, "store.kind", "s3, because store.endpoint is set"),
        ({"kind": '"directory"'}, "store.kind", "s3, because store.endpoint is set"),
        ({"kind": "", "endpoint": "", "bucket": ""}, "store.kind", "store.access_key is set"),
        ({"endpoint": ""}, "store.endpoint", "https://s3.bj.bcebos.com"),
        ({"endpoint": '"s3.bj.bcebos.com"'}, "store.endpoint", "https://s3.bj.bcebos.com"),
        ({"bucket": ""}, "store.bucket", "needs it"),
        ({"access_key": ""}, "store.access_key", "needs it"),
        ({"secret_key": ""}, "store.secret_key", "needs it"),
        ({"prefix": '"a/../b"'}, "store.prefix", "a directory"),
        ({"path_style": '"yes"'}, "store.path_style", "true or false"),
        ({"buckett": '"x"'}, "store.buckett", "store.bucket"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, str], key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, **changes)
    assert key in str(caught.value)
    assert hint in str(caught.value)
    assert "secret key of the file" not in str(caught.value)


def test_private_storage_is_open_unless_said_otherwise(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path).private_store
    assert (settings.enabled, settings.door) == (True, "https://s3.{region}.bcebos.com")


@pytest.mark.parametrize(
    "door", ["s3.bj.bcebos.com", "ftp://x", "https://s3.{area}.example", "http://{region}.x{y}"]
)
def test_a_door_is_an_address(tmp_path: Path, door: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f'[private_store]\ndoor = "{door}"\n')
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path, file, {})
    assert "private_store.door" in str(caught.value)
    assert "https://s3.{region}.bcebos.com" in str(caught.value)
