"""`quota` and `admin quota`: what is asked of the server, and how the answer is printed."""

from __future__ import annotations

from typing import Any

import pytest

from paddlecloud.cli import registry
from paddlecloud.cli.output import Output
from paddlecloud.cli.parser import parse
from paddlecloud.model.errors import Invalid

VIEW = {
    "user_id": "ann",
    "plan": "free",
    "own_limits": ["storage"],
    "max_priority": "normal",
    "limits": [
        {"name": "running_jobs", "used": 1, "limit": 2},
        {"name": "minutes_a_day", "used": 62.5, "limit": 100},
        {"name": "minutes_a_job", "used": None, "limit": 30},
        {"name": "storage", "used": 1024, "limit": 20 * 2**30},
    ],
    "minutes_left": 37.5,
    "renews": "2026-01-06 00:00 (Asia/Shanghai)",
    "renews_at": "2026-01-05T16:00:00Z",
}
DAY = {"date": "2026-01-05", "minutes": 62.5, "private_minutes": 0.0, "jobs": 3}
LIMITS = {"running_jobs": 2, "minutes_a_day": None, "minutes_a_job": None, "cpu": 0.5}
PLAN = {
    "name": "free",
    "default": True,
    "max_priority": "normal",
    "limits": LIMITS | {"memory": 2**30, "gpu": 0, "storage": None, "waiting_jobs": 1000},
}


class Recorder:
    """A client that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def quota(self, user: str | None = None) -> dict[str, Any]:
        self.asked.append(("quota", user))
        return VIEW

    def quota_history(self, days: int, user: str | None = None) -> list[dict[str, Any]]:
        self.asked.append(("history", days, user))
        return [DAY]

    def set_quota(self, user: str, **wanted: Any) -> dict[str, Any]:
        self.asked.append(("set", user, wanted))
        return VIEW

    def plans(self) -> list[dict[str, Any]]:
        return [PLAN]


class Context:
    def __init__(self) -> None:
        self.out = Output("en", {})
        self.client = Recorder()


def call(*words: str) -> list[tuple[Any, ...]]:
    """Run a command; what it asked of the server."""
    command, rest = registry.find(words)
    args = parse(command, rest)
    context: Any = Context()
    context.out.json = args["json"]
    assert command.run(args, context) == 0
    asked: list[tuple[Any, ...]] = context.client.asked
    return asked


def test_each_limit_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("quota") == [("quota", None)]
    assert capsys.readouterr().out.splitlines() == [
        "running_jobs\t1\t2",
        "minutes_a_day\t62.5\t100",
        "minutes_a_job\t-\t30",
        "storage\t1.0 KiB\t20.0 GiB",
        "user: ann",
        "plan: free",
        "own_limits: storage",
        "max_priority: normal",
        "minutes_left: 37.5",
        "renews: 2026-01-06 00:00 (Asia/Shanghai)",
    ]


def test_days_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("quota", "--history", "--days=7", "--user=bob") == [("history", 7, "bob")]
    assert capsys.readouterr().out == "2026-01-05\t62.5\t0\t3\n"
    call("quota", "--history", "--json")
    assert '"jobs": 3' in capsys.readouterr().out


def test_an_admin_asks_for_somebody_and_changes_them() -> None:
    assert call("admin", "quota", "show", "bob") == [("quota", "bob")]
    asked = call(
        "admin", "quota", "set", "bob", "--plan=big", "--limit", "cpu=2", "--limit=storage=5Gi"
    )
    limits = {"cpu": "2", "storage": "5Gi"}
    assert asked == [("set", "bob", {"plan": "big", "limits": limits})]
    assert call("admin", "quota", "set", "bob", "--plan=default") == [
        ("set", "bob", {"plan": None})
    ]


def test_plans_are_a_table_with_the_default_marked(capsys: pytest.CaptureFixture[str]) -> None:
    call("admin", "quota", "plans")
    line = capsys.readouterr().out
    assert line == "free*\t2\t-\t-\t0.5\t1.0 GiB\t0\t-\t1000\tnormal\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show",), "quota_user_missing"),
        (("set", "bob"), "quota_nothing_given"),
        (("set", "bob", "--limit", "cpu"), "quota_limit_form"),
        (("set", "bob", "--limit", "=2"), "quota_limit_form"),
    ],
)
def test_wrong_words_are_named_before_anything_is_asked(words: tuple[str, ...], code: str) -> None:
    with pytest.raises(Invalid) as invalid:
        call("admin", "quota", *words)
    assert invalid.value.code == code
