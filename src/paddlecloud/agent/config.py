"""agent.json: the identity of this agent and the address of its server. The only reader of it.

The address is either fixed (`url`) or written by an embedded server into a file at each of its
starts (`endpoint_file`), because that server chooses a free port each time. Further servers on the
same database are listed in responses; the last list is kept in `peers.json`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.errors import ConfigError
from paddlecloud.net.endpoint import Endpoint
from paddlecloud.net.proxy import DIRECT, Proxies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PEERS = "peers.json"


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    path: Path
    agent_id: str
    ak: str
    sk: str
    url: str = ""
    endpoint_file: Path | None = None
    ca_file: str = ""
    """Certificates to trust for https; empty: those of the system."""
    host: str = "127.0.0.1"
    """The name by which other machines reach this one."""
    linger: float = 60.0
    """Seconds after which the agent ends when its embedded server is gone and nothing runs."""
    cache_bytes: int | None = None
    """Limit of the cache of fetched files; None: the server's setting."""

    capacity: Mapping[str, float] = field(default_factory=dict)
    """What this machine offers, by cpu, memory, gpu; what is absent is detected."""

    proxies: Proxies = DIRECT
    """From the environment in which the agent was started."""

    @property
    def directory(self) -> Path:
        """Where the agent writes everything."""
        return self.path.parent


def read_config(path: Path, proxies: Proxies = DIRECT) -> AgentConfig:
    """The configuration at `path`. Raises ConfigError."""
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError("agent_config_unreadable", path=str(path), reason=reason) from error
    if not isinstance(raw, dict):
        raise ConfigError("agent_config_unreadable", path=str(path), reason="not a JSON object")
    missing = [name for name in ("agent_id", "ak", "sk") if not raw.get(name)]
    if not raw.get("url") and not raw.get("endpoint_file"):
        missing.append("url")
    if missing:
        raise ConfigError("agent_config_incomplete", path=str(path), missing=", ".join(missing))
    endpoint_file = raw.get("endpoint_file")
    return AgentConfig(
        path=path.absolute(),
        agent_id=str(raw["agent_id"]),
        ak=str(raw["ak"]),
        sk=str(raw["sk"]),
        url=str(raw.get("url") or ""),
        endpoint_file=Path(str(endpoint_file)) if endpoint_file else None,
        ca_file=str(raw.get("ca_file") or ""),
        host=str(raw.get("host") or "127.0.0.1"),
        linger=float(raw.get("linger", 60.0)),
        cache_bytes=int(raw["cache_bytes"]) if "cache_bytes" in raw else None,
        capacity=dict(raw.get("capacity") or {}),
        proxies=proxies,
    )


def read_peers(config: AgentConfig) -> tuple[str, ...]:
    """The servers of the last list; none where there is no list."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        return valid_urls(json.loads((config.directory / PEERS).read_bytes())["urls"])
    return ()


def write_peers(config: AgentConfig, urls: Sequence[str]) -> None:
    """Keep them for the next start, if the disk has space."""
    scratch = config.directory / f"{PEERS}.new"
    with suppress(OSError):
        scratch.write_text(json.dumps({"urls": list(urls)}), encoding="utf-8")
        scratch.replace(config.directory / PEERS)


def valid_urls(urls: Sequence[object]) -> tuple[str, ...]:
    """Those of them that are URLs of servers."""
    found = []
    for url in urls:
        with suppress(ValueError):
            if isinstance(url, str) and url.startswith(("http://", "https://")):
                found += [url] if Endpoint(url, "", "").host else []
    return tuple(found)


def find_endpoint(config: AgentConfig) -> Endpoint | None:
    """The address of the server; None while an embedded one has not written it."""
    if config.endpoint_file is None:
        return endpoint_at(config.url, config)
    try:
        raw = json.loads(config.endpoint_file.read_bytes())
        return endpoint_at(str(raw["url"]), config, boot=str(raw.get("boot") or ""))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def endpoint_at(url: str, config: AgentConfig, *, boot: str = "") -> Endpoint:
    """`http://host:port` or `https://host[:port]`, with the keys of this agent."""
    try:
        found = Endpoint(url, config.ak, config.sk, boot, config.ca_file)
    except ValueError:
        raise ConfigError("agent_url", url=url) from None
    if not found.host or not url.startswith(("http://", "https://")):
        raise ConfigError("agent_url", url=url)
    return found
