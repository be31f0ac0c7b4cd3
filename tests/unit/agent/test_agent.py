"""The small parts of the agent: addresses, back-off, events of the kernel, agent.log."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from paddlecloud.agent.config import AgentConfig, endpoint_at
from paddlecloud.agent.inotify import MODIFY, parse
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.outputs.scan import Found, is_settled
from paddlecloud.agent.server_link.channel import Backoff
from paddlecloud.model.errors import ConfigError

CONFIG = AgentConfig(path=Path("agent.json"), agent_id="local", ak="a", sk="s")


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, False)),
        ("http://127.0.0.1:8000/", ("127.0.0.1", 8000, False)),
        ("https://cloud.example", ("cloud.example", 443, True)),
        ("https://cloud.example:8443", ("cloud.example", 8443, True)),
        ("http://[::1]:80", ("::1", 80, False)),
        ("http://[::1]", ("::1", 80, False)),
    ],
)
def test_addresses_of_servers(url: str, want: tuple[str, int, bool]) -> None:
    found = endpoint_at(url, CONFIG, boot="b")
    assert (found.host, found.port, found.tls) == want
    assert (found.ak, found.sk, found.boot) == ("a", "s", "b")


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x:1", "http://", "http://x:y"])
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a server URL") as caught:
        endpoint_at(url, CONFIG)
    assert caught.value.params == {"url": url}


def test_pauses_double_up_to_the_limit_and_begin_anew() -> None:
    backoff = Backoff(first=0.5, longest=2.0)
    assert [backoff.next() for _ in range(4)] == [0.5, 1.0, 2.0, 2.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_events_of_the_kernel_are_cut_apart() -> None:
    named = struct.pack("iIII", 1, MODIFY, 0, 16) + b"server.json".ljust(16, b"\0")
    bare = struct.pack("iIII", 2, MODIFY, 0, 0)
    assert parse(named + bare) == [(1, MODIFY, "server.json"), (2, MODIFY, "")]
    assert parse(b"") == []


def test_the_agent_log_is_readable_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    log = AgentLog(path, limit=200, clock=lambda: 1.5)
    log.info("begins")
    log.warning("two\nlines", "job-1")
    assert path.read_text() == (
        "1970-01-01T00:00:01.500Z info begins\n"
        "1970-01-01T00:00:01.500Z warning job-1 two\n    lines\n"
    )
    for _ in range(20):
        log.info("x" * 50)
    old = tmp_path / "agent.log.1"
    assert 200 < old.stat().st_size < 400
    assert not path.exists() or path.stat().st_size < 400


def test_lines_that_could_not_be_written_are_counted(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "later" / "agent.log", clock=lambda: 0.0)
    log.info("one")
    log.info("two")
    (tmp_path / "later").mkdir()
    log.info("three")
    text = (tmp_path / "later" / "agent.log").read_text()
    assert text.startswith("(2 earlier lines could not be written)\n")
    assert text.endswith("three\n")


def test_a_mistake_is_logged_with_its_place(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "agent.log")
    try:
        raise RuntimeError("a mistake")
    except RuntimeError:
        log.failure("the reporter stumbled", "job-1")
    text = (tmp_path / "agent.log").read_text()
    assert "error job-1 the reporter stumbled" in text
    assert "RuntimeError: a mistake" in text
    assert Path(__file__).name in text


@pytest.mark.parametrize(
    ("area", "size", "age", "seen", "want"),
    [
        ("output", 10, 2.0, False, True),
        ("output", 10, 0.5, False, False),
        ("output", 10, 0.5, True, True),
        ("output", 2**30, 0.5, True, False),
        ("output", 2**30, 2.0, False, True),
        ("log", 2**30, 0.5, True, True),
    ],
    ids=[
        "it rests",
        "it may be half written",
        "it keeps changing, and is small",
        "it keeps changing, and is large",
        "a large one rests",
        "a log keeps growing",
    ],
)
def test_which_files_of_a_running_job_are_sent(
    area: str, size: int, age: float, seen: bool, want: bool
) -> None:
    mark = (size, int((100.0 - age) * 1e9), 1)
    found = Found(area=area, path="a", where=Path("a"), mark=mark)
    assert is_settled(found, now=100.0, was_changing=seen) is want
