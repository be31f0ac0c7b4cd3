"""Pools that an admin adds: stored, encrypted where they are secret, opened at the next start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from paddlecloud.backends import scripted
from paddlecloud.backends.scripted import Script, Scripted
from paddlecloud.model.errors import ConfigError, Conflict, NotFound
from paddlecloud.model.setting_types import Secret
from paddlecloud.server.bootstrap import open_deps
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.services.admin import pools
from paddlecloud.server.settings import PoolSettings, ReplicaSettings, Settings

ADMIN = Caller(ak="", user_id="chief", kind="user", role="admin")
LAB = {"kind": "scripted", "nodes": 2, "public": False}


@dataclass(kw_only=True)
class KeyedScript(Script):
    key: Secret = field(default="", repr=False)
    """A secret."""


class Keyed(Scripted):
    settings: ClassVar[type] = KeyedScript


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """No agent is started for it."""
    (tmp_path / "server").mkdir()
    return Settings(
        home=tmp_path,
        replica=ReplicaSettings(agent=False),
        pools=(PoolSettings(name="far", kind="scripted"),),
    )


def closed(deps: Deps) -> Deps:
    store: Any = deps.store
    deps.logs.close()
    store.close()
    deps.db.close()
    return deps


def script_of(deps: Deps, pool: str) -> Script:
    backend = deps.backends[pool]
    assert isinstance(backend, Scripted)
    return backend.script


def test_a_stored_pool_comes_after_those_of_the_file(settings: Settings) -> None:
    deps = open_deps(settings)
    pools.create(deps, ADMIN, "lab", LAB)
    assert list(deps.pools) == ["far", "lab"]
    assert script_of(deps, "lab").nodes == 2
    with pytest.raises(Conflict) as caught:
        pools.create(deps, ADMIN, "lab", LAB)
    assert caught.value.code == "pool_exists"
    closed(deps)
    again = closed(open_deps(settings))
    assert list(again.pools) == ["far", "lab"]
    assert again.pools["lab"].private
    assert script_of(again, "lab").nodes == 2


def test_the_name_of_a_pool_of_the_file_is_refused(settings: Settings) -> None:
    deps = open_deps(settings)
    with pytest.raises(Conflict):
        pools.create(deps, ADMIN, "far", LAB)
    with pytest.raises(ConfigError, match="unknown setting"):
        pools.create(deps, ADMIN, "lab", LAB | {"colour": "red"})
    pools.create(deps, ADMIN, "lab", LAB)
    closed(deps)
    taken = replace(settings, pools=(PoolSettings(name="lab", kind="scripted"),))
    again = closed(open_deps(taken))
    assert list(again.pools) == ["lab"]
    assert script_of(again, "lab").nodes == 1, "the file has it now"


def test_a_deleted_pool_is_gone_at_once(settings: Settings) -> None:
    deps = open_deps(settings)
    pools.create(deps, ADMIN, "lab", LAB)
    pools.delete(deps, ADMIN, "lab")
    assert list(deps.pools) == list(deps.backends) == ["far"]
    with pytest.raises(NotFound):
        pools.delete(deps, ADMIN, "lab")
    rows = deps.db.read(lambda tx: tx.all("select action, target from audit order by number"))
    assert rows == [("pool.create", "lab"), ("pool.delete", "lab")]
    closed(deps)
    assert list(closed(open_deps(settings)).pools) == ["far"]


def test_secrets_of_a_pool_are_stored_encrypted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted, "BACKEND", Keyed)
    deps = open_deps(settings)
    pools.create(deps, ADMIN, "lab", LAB | {"key": "canary-of-the-cloud"})
    ((options, sealed),) = deps.db.read(lambda tx: tx.all("select options, sealed from pools"))
    assert "canary" not in options + sealed
    closed(deps)
    lab = closed(open_deps(settings)).backends["lab"]
    assert isinstance(lab, Keyed)
    assert lab.script == KeyedScript(nodes=2, key="canary-of-the-cloud")
