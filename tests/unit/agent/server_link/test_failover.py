"""Which server an agent asks when its own does not answer, and what it remembers of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddlecloud.agent.config import AgentConfig, read_config, read_peers
from paddlecloud.agent.server_link.channel import OWN, Link
from paddlecloud.model.errors import Refused, Unreachable

ONE, TWO = "http://10.0.0.1:8080", "https://cloud.example.com"


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    facts = {
        "agent_id": "machine",
        "ak": "a",
        "sk": "s",
        "endpoint_file": str(tmp_path / "server.json"),
        "capacity": {"cpu": 2.5},
    }
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(facts))
    return read_config(path)


def routes(link: Link, count: int) -> list[str]:
    """The servers that it tries when none responds."""
    found = []
    for _ in range(count):
        found.append(link.route)
        link.lost(link.route)
    return found


def test_each_server_is_tried_in_turn_and_the_own_one_first(config: AgentConfig) -> None:
    link = Link(config)
    assert routes(link, 3) == [OWN] * 3, "there is no other"
    link.set_peers([ONE, TWO])
    assert routes(link, 4) == [OWN, ONE, TWO, OWN]


def test_a_thread_that_comes_late_does_not_turn_it_further(config: AgentConfig) -> None:
    link = Link(config)
    link.set_peers([ONE, TWO])
    for _ in range(5):
        link.lost(OWN)
    assert link.route == ONE
    assert link.endpoint(link.route).host == "10.0.0.1"


def test_a_server_that_is_not_named_any_more_is_left_for_the_own_one(config: AgentConfig) -> None:
    link = Link(config)
    link.set_peers([ONE])
    link.lost(OWN)
    link.set_peers([TWO])
    assert link.route == ONE, "it still answers"
    link.lost(ONE)
    assert link.route == OWN


def test_what_was_learned_outlives_the_agent(config: AgentConfig) -> None:
    Link(config).set_peers([ONE, TWO])
    again = Link(config)
    assert again.peers == (ONE, TWO)
    assert again.route == OWN
    again.set_peers([])
    assert Link(config).peers == ()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"urls": 3}', '{"urls": null}', "null"])
def test_a_damaged_file_is_no_knowledge(config: AgentConfig, text: str) -> None:
    (config.directory / "peers.json").write_text(text)
    assert read_peers(config) == ()


def test_what_is_no_address_is_left_out(config: AgentConfig) -> None:
    link = Link(config)
    link.set_peers([ONE, "ftp://host", "", 7, None, "http://", "/etc/passwd"])
    assert link.peers == (ONE,)


def test_without_any_address_nobody_is_asked(config: AgentConfig) -> None:
    with pytest.raises(Unreachable, match="no server has written"):
        Link(config).endpoint(OWN)


def test_the_machine_is_said_to_have_what_its_server_says(config: AgentConfig) -> None:
    assert config.capacity == {"cpu": 2.5}


def test_secrets_are_not_asked_for_over_plain_http_to_another_machine(config: AgentConfig) -> None:
    link = Link(config)
    link.set_peers([ONE])
    link.lost(OWN)
    with pytest.raises(Refused) as caught:
        link.channel().confidential("/agent/replicas/r/secrets")
    assert caught.value.code == "secrets_plain"
    assert str(caught.value.params["url"]).startswith("http://10.0.0.1")
