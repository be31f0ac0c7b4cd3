"""Keys of a bucket: where they are found, and over which ways they never go."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddlecloud.client.config.resolve import resolve
from paddlecloud.client.upload.user_bucket import keys_for, with_keys
from paddlecloud.model.errors import Refused
from paddlecloud.net.endpoint import Endpoint

URL = "bucket.bj.bcebos.com/dir"
CONF = "[bos]:\nak = AKB\nsk = SKB\nsession_token = T0\n"


def a_client(home: Path, url: str, conf: str = CONF, **environ: str) -> Any:
    (home / "client.conf").write_text(conf)
    (home / "client.conf").chmod(0o600)
    config = resolve({}, {"PADDLECLOUD_HOME": str(home), "HOME": str(home), **environ})
    assert config.warnings == []
    return SimpleNamespace(config=config, transport=SimpleNamespace(endpoint=Endpoint(url, "", "")))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:80", "https://cloud.test"]
)
def test_keys_go_to_this_machine_or_by_tls(tmp_path: Path, url: str) -> None:
    want = {"bos_access_key": "AKB", "bos_secret_key": "SKB", "bos_session_token": "T0"}
    assert keys_for(a_client(tmp_path, url), URL) == want


@pytest.mark.parametrize(
    "url",
    [
        *("http://cloud.test", "http://10.0.0.7:8080", "http://localhost.x"),
        *("http://127.example.com", "http://127.0.0.1.test", "http://127.0.0.x", "http://127.1"),
    ],
)
def test_keys_never_travel_in_the_open(tmp_path: Path, url: str) -> None:
    with pytest.raises(Refused, match="never sent over plain HTTP") as caught:
        keys_for(a_client(tmp_path, url), URL)
    assert caught.value.code == "private_keys_plain"
    assert "SKB" not in str(caught.value)


@pytest.mark.parametrize("conf", ["", "[bos]\nak = AKB\n", "[bos]\nsk = SKB\n"])
def test_missing_keys_are_asked_for_by_name(tmp_path: Path, conf: str) -> None:
    with pytest.raises(Refused) as caught:
        keys_for(a_client(tmp_path, "http://127.0.0.1:1", conf), URL)
    said = str(caught.value)
    assert caught.value.code == "private_store_no_keys"
    for word in (URL, "[bos]", "ak and sk", str(tmp_path / "client.conf"), "PADDLECLOUD_BOS_SK"):
        assert word in said
    assert "SKB" not in said


def test_variables_come_before_the_file(tmp_path: Path) -> None:
    more = {"PADDLECLOUD_BOS_AK": "A", "PADDLECLOUD_BOS_SK": "S"}
    client = a_client(tmp_path, "http://127.0.0.1:1", **more)
    found = keys_for(client, URL)
    assert (found["bos_access_key"], found["bos_secret_key"]) == ("A", "S")
    shown = {name: text for name, text, _ in client.config.rows()}
    assert (shown["bos.sk"], shown["bos.session_token"]) == ("********", "********")


def refused() -> None:
    raise Refused("private_store_denied", bos_url=URL, keys="[bos]", detail="403 no")


def test_keys_that_are_refused_are_named_by_where_they_came_from(tmp_path: Path) -> None:
    more = {"PADDLECLOUD_BOS_AK": "A", "PADDLECLOUD_BOS_SK": "S"}
    with pytest.raises(Refused, match="rejects the keys of PADDLECLOUD_BOS_AK, PADDLECLOUD_BOS_SK"):
        with_keys(a_client(tmp_path, "http://127.0.0.1:1", **more), refused)
    with pytest.raises(
        Refused, match=r"rejects the keys of .*client\.conf:2, .*client\.conf:3 .*403 no"
    ):
        with_keys(a_client(tmp_path, "http://127.0.0.1:1"), refused)


def test_a_pair_of_two_places_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "client.conf").write_text(CONF)
    (tmp_path / "client.conf").chmod(0o600)
    environ = {"PADDLECLOUD_HOME": str(tmp_path), "PADDLECLOUD_BOS_AK": "A"}
    (warning,) = resolve({}, environ).warnings
    assert warning.code == "config_mixed_pair"
    assert "PADDLECLOUD_BOS_AK" in str(warning)
    assert "client.conf:3" in str(warning)
