"""The text of `/metrics`, read back by the parser of prometheus_client."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from paddlecloud.server.metrics import Gauge, Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(metrics: Metrics, *gauges: Gauge) -> Samples:
    text = metrics.render(gauges).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_a_request_is_counted_by_status_and_timed_by_its_class() -> None:
    metrics = Metrics()
    metrics.answered("GET", "/api/v1/jobs/{job_id}", 200, 0.02)
    metrics.answered("GET", "/api/v1/jobs/{job_id}", 202, 0.3)
    metrics.answered("GET", "/api/v1/jobs/{job_id}", 404, 0.001)
    found = samples(metrics)
    where = {"method": "GET", "route": "/api/v1/jobs/{job_id}"}
    assert of(found, "paddlecloud_requests_total", **where, status="200") == 1
    good = {**where, "status_class": "2xx"}
    assert of(found, "paddlecloud_request_seconds_count", **good) == 2
    assert of(found, "paddlecloud_request_seconds_sum", **good) == 0.32
    assert of(found, "paddlecloud_request_seconds_bucket", **good, le="0.025") == 1
    assert of(found, "paddlecloud_request_seconds_bucket", **good, le="+Inf") == 2
    assert of(found, "paddlecloud_request_seconds_count", **where, status_class="4xx") == 1
    assert not [name for name, _ in found if name.endswith("_created")]


def test_waits_are_reported_by_pool_from_the_start() -> None:
    metrics = Metrics()
    metrics.add_pools(["local"])
    assert of(samples(metrics), "paddlecloud_queue_wait_seconds_count", pool="local") == 0
    metrics.placed("local", -1.0)
    metrics.started("local", 40.0)
    metrics.planned(0.004)
    found = samples(metrics)
    assert of(found, "paddlecloud_queue_wait_seconds_sum", pool="local") == 0, "clocks may differ"
    assert of(found, "paddlecloud_submit_to_start_seconds_bucket", pool="local", le="30.0") == 0
    assert of(found, "paddlecloud_submit_to_start_seconds_bucket", pool="local", le="60.0") == 1
    assert of(found, "paddlecloud_plan_seconds_count") == 1


def test_gauges_are_escaped_and_keep_their_digits() -> None:
    odd = 'a"b\\c\nd'
    gauge = Gauge(name="jobs", help="of\nall", labels=("state",), values={(odd,): 1234567.25})
    found = samples(Metrics(), gauge, Gauge(name="big", help="", values={(): 12345678901.0}))
    assert of(found, "jobs", state=odd) == 1234567.25
    assert of(found, "big") == 12345678901


def test_two_servers_in_one_process_count_apart() -> None:
    one, two = Metrics(), Metrics()
    one.outbox("given_up", "mail")
    assert of(samples(one), "paddlecloud_outbox_given_up_total", kind="mail") == 1
    assert not [name for name, _ in samples(two) if name == "paddlecloud_outbox_given_up_total"]
    assert of(samples(two), "process_resident_memory_bytes") > 0
