"""Client, agent, bucket and webhook behind a proxy with a password, each with TLS inside.

The names are known to the proxy alone, so what arrives went through it.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddlecloud import Client
from paddlecloud.agent import _join
from paddlecloud.agent._join import Arguments
from paddlecloud.agent.config import read_config
from paddlecloud.agent.server_link.channel import Link
from paddlecloud.model.errors import Refused, Retry, Unauthenticated, Unreachable
from paddlecloud.net import tls as net_tls
from paddlecloud.net.proxy import Proxies, from_environment, parse_proxy
from paddlecloud.server.services.notifications import _webhook as webhook
from paddlecloud.server.services.notifications._webhook import Target
from paddlecloud.server.settings import Settings
from paddlecloud.stores import create
from tests.integration.server.certificates import an_issuer, issue
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_webhook import Receiver
from tests.proxies import LittleProxy, TlsFront, proxying

NAMES = ("cloud.example", "s3.example", "hook.example")
PASSWORD = "p%40ss"
BASIC = "Basic " + b64encode(b"ann:p@ss").decode()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The file of an issuer, and a certificate for all names with its key."""
    folder = tmp_path_factory.mktemp("tls")
    issuer = an_issuer(folder)
    return issuer.path, *issue(issuer, folder / "server", names=NAMES)


@contextmanager
def proxy_to(port: int, tls: tuple[Path, Path, Path]) -> Iterator[tuple[LittleProxy, str]]:
    """A proxy that wants a password, with TLS at its end; and its URL with the password."""
    with TlsFront(port, *tls[1:]) as front, proxying(front.port, BASIC) as proxy:
        yield proxy, f"http://ann:{PASSWORD}@{proxy.address}"


def known_by_name(settings: Settings) -> Settings:
    return replace(settings, http=replace(settings.http, allowed_hosts=NAMES))


def test_the_client(
    make_world: MakeWorld, tls: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(change=known_by_name)
    keys: dict[str, Any] = {"ak": world.user.ak, "sk": world.user.sk}
    monkeypatch.setenv("PADDLECLOUD_CA_FILE", str(tls[0]))
    with proxy_to(world.stage.port, tls) as (proxy, url):
        monkeypatch.setenv("https_proxy", url)
        with Client(host="https://cloud.example", **keys) as client:
            assert client.whoami()["user_id"] == "someone"
        assert proxy.seen == ["CONNECT cloud.example:443 HTTP/1.1"]
        assert b"bce-auth" not in proxy.tunnelled
        monkeypatch.setenv("https_proxy", proxy.url)
        with (
            Client(host="https://cloud.example", **keys) as client,
            pytest.raises(Unreachable) as caught,
        ):
            client.whoami()
        assert caught.value.code == "proxy_auth"
        assert proxy.address in str(caught.value)
        # This machine is reached without it, whatever the variables are.
        seen = len(proxy.seen)
        monkeypatch.setenv("http_proxy", proxy.url)
        with Client(host=f"http://127.0.0.1:{world.stage.port}", **keys) as client:
            assert client.whoami()["user_id"] == "someone"
        assert len(proxy.seen) == seen


def test_the_agent(make_world: MakeWorld, tls: tuple[Path, Path, Path], tmp_path: Path) -> None:
    world = make_world(change=known_by_name)
    path = tmp_path / "agent.json"
    keys = world.agent.caller
    values = {"agent_id": "node-0", "ak": keys.ak, "sk": keys.sk, "ca_file": str(tls[0])}
    path.write_text(json.dumps(values | {"url": "https://cloud.example:8443"}))
    with proxy_to(world.stage.port, tls) as (proxy, url):
        link = Link(read_config(path, from_environment({"HTTPS_PROXY": url})))
        with closing(link.channel()) as channel, pytest.raises(Unauthenticated) as refused:
            channel.json("GET", "/whoami")
        assert refused.value.code == "auth_role", "an agent is no user, but it got that far"
        assert proxy.seen == ["CONNECT cloud.example:8443 HTTP/1.1"]


def test_a_machine_that_joins(tls: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """It trusts the certificate of its invitation, whose issuer it does not know."""
    der = ssl.PEM_cert_to_DER_cert(tls[1].read_text())
    given = Arguments(
        command="join",
        url="https://cloud.example",
        token="t",
        directory=tmp_path,
        tls_sha256=hashlib.sha256(der).hexdigest(),
    )
    with proxy_to(1, tls) as (proxy, url):
        trusted = _join._trusted(given, parse_proxy(url, "HTTPS_PROXY"))
        assert {*proxy.seen} == {"CONNECT cloud.example:443 HTTP/1.1"}
        with pytest.raises(Refused) as refused:
            _join._trusted(replace(given, tls_sha256="0" * 64), parse_proxy(url, ""))
    assert Path(trusted).read_text() == ssl.DER_cert_to_PEM_cert(der)
    assert refused.value.code == "machine_certificate"


def test_the_bucket(
    s3_settings: dict[str, str], tls: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = urlsplit(s3_settings["endpoint"]).port
    assert port is not None
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    monkeypatch.setattr(net_tls, "_contexts", {})
    with proxy_to(port, tls) as (proxy, url):
        place = {"endpoint": "https://s3.example", "proxies": Proxies(https=url)}
        with closing(create("s3", {**s3_settings, **place})) as store:  # type: ignore[type-var]
            store.write("x", [b"1" * 100_000])
            assert b"".join(store.read("x")) == b"1" * 100_000
        assert set(proxy.seen) == {"CONNECT s3.example:443 HTTP/1.1"}


def test_the_webhook(tls: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is asked for the address that was checked, and the name for the certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    target = Target(host="hook.example", port=443, path="/hook", secure=True)
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        with proxy_to(receiver.server_port, tls) as (proxy, url):
            ips = ["93.184.216.34", "2606:2800:220:1::1"]
            assert webhook.post(target, ips, b"{}", {}, proxies=Proxies(https=url)) == 200
            assert proxy.seen == ["CONNECT 93.184.216.34:443 HTTP/1.1"]
            assert [path for path, _, _ in receiver.got] == ["/hook"]
            with pytest.raises(Retry) as caught:
                webhook.post(target, ips, b"{}", {}, proxies=Proxies(https=proxy.url))
        receiver.shutdown()
    assert "requires a user name and password" in str(caught.value)
    assert "p@ss" not in str(caught.value)
