"""A real Prometheus scrapes a real server, and answers every expression of the dashboard."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import prometheus
from tests.integration.cli.person import Person
from tests.integration.server.world import eventually
from tests.ports import free_port

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_token_is_all_that_is_printed(shared: Person) -> None:
    made = shared.types("admin", "token", "create", "--scope=metrics", "--name=prometheus")
    assert re.fullmatch(r"pcm-[0-9a-f]{64}\n", made.out), made
    ak = re.search(r"admin token revoke ([0-9a-f]{32})\n", made.err)
    assert ak is not None, made.err
    assert ak[1] in shared.types("admin", "token", "list").out
    assert shared.types("admin", "token", "revoke", ak[1]).code == 0
    assert ak[1] not in shared.types("admin", "token", "list").out
    made = shared.types("admin", "token", "create", "--scope=metrics", "--json")
    assert made.json.keys() == {"ak", "token", "name", "scope", "created_at"}
    refused = shared.types("admin", "token", "create", "alice", "--scope=metrics")
    assert (refused.code, "leave out alice" in refused.err) == (2, True), refused


def test_the_panels_of_the_dashboard_lie_side_by_side() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        own = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert max(columns) < 24
        assert not own & cells, panel["title"]
        cells |= own
        assert panel["datasource"]["uid"] == "${datasource}"
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.slow(seconds=8)
def test_every_expression_of_the_dashboard_has_rows(shared: Person, tmp_path: Path) -> None:
    try:
        program, promtool = (prometheus.find_program(name) for name in ("prometheus", "promtool"))
    except prometheus.Missing as error:
        pytest.skip(str(error))
    job = shared.here / "watched"
    job.mkdir()
    (job / "run.sh").write_text("echo hi\n")
    config = _config(shared, tmp_path)
    subprocess.run([promtool, "check", "config", config], check=True, capture_output=True)
    with _running(program, config, tmp_path) as ask:
        eventually(lambda: _values(ask("up")) == [1.0], 60)
        submit = ("submit_job", f"--files={job}", "--start_cmd=sh run.sh", "--watch_mode=1")
        for _ in range(3):
            assert shared.types(*submit).code == 0
        # A rate takes two scrapes, and only what was counted between them has a quantile.
        empty = set(EXPRESSIONS)

        def all_have_rows() -> bool:
            empty.difference_update({text for text in empty if _values(ask(text))})
            return not empty

        with contextlib.suppress(AssertionError):
            eventually(all_have_rows, 60)
        assert empty == set()
        done = 'paddlecloud_jobs{state="success"}'
        eventually(lambda: _values(ask(done)) == [3.0], 60)
    assert len(EXPRESSIONS) == len(set(EXPRESSIONS)) >= 15


def _config(person: Person, folder: Path) -> Path:
    """The example of deploy/ with the address of this server, and more frequent."""
    token = person.types("admin", "token", "create", "--scope=metrics", "--name=prometheus").out
    credentials = folder / "token"
    credentials.write_text(token)
    url = person.types("server", "status", "--json").json["url"]
    text = (DEPLOY / "prometheus.yml").read_text("utf-8")
    for pattern, new in (
        (r"scrape_interval: \S+", "scrape_interval: 500ms\n  scrape_timeout: 500ms"),
        (r"scheme: https", "scheme: http"),
        (r"credentials_file: \S+", f"credentials_file: {credentials}"),
        (r"targets: \[.*\]", f'targets: ["{url.removeprefix("http://")}"]'),
    ):
        text, count = re.subn(pattern, new, text)
        assert count == 1, pattern
    path = folder / "prometheus.yml"
    path.write_text(text)
    return path


@contextlib.contextmanager
def _running(program: Path, config: Path, folder: Path) -> Iterator[Any]:
    """A Prometheus; yields a function that asks it for the value of an expression."""
    url = f"http://127.0.0.1:{free_port()}"
    options = (
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(expression: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression})
        try:
            with opener.open(f"{url}/api/v1/query?{query}", timeout=30) as reply:
                rows: list[dict[str, Any]] = json.load(reply)["data"]["result"]
                return rows
        except OSError as error:
            if isinstance(error, urllib.request.HTTPError) and error.code != 503:
                raise AssertionError(f"{expression}: {error.read()!r}") from error
            return []  # it starts

    with subprocess.Popen([program, *options], stderr=subprocess.DEVNULL) as process:
        try:
            yield ask
        finally:
            process.terminate()


def _values(rows: list[dict[str, Any]]) -> list[float]:
    """The values that are numbers."""
    return [value for row in rows if not math.isnan(value := float(row["value"][1]))]
