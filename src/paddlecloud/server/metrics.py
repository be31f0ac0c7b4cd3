"""Metrics of this process for Prometheus: counters, histograms, and the text of `/metrics`.

Every label has few values: routes count by their template, statuses by their class, jobs by pool.
The gauges are measured for each scrape (`services.admin.gauges`). The registry is our own: that of
prometheus_client also reports Python itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily

CONTENT_TYPE = "text/plain; version=0.0.4"
_REQUEST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Up to the 30 s of a long poll."""
_WAIT = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0)
_PLAN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

# The time at which each series began would be another series of each.
disable_created_metrics()


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """A gauge as it was measured for one scrape, with a value for each set of labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: Mapping[tuple[str, ...], float] = field(default_factory=dict)


class Metrics:
    """The counters and histograms of one server. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "paddlecloud_requests",
            "Answered requests",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "paddlecloud_request_seconds",
            "Time until the response began; that of a long poll includes its wait",
            ("method", "route", "status_class"),
            buckets=_REQUEST,
            registry=self._registry,
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """Of requests: to find them by their labels takes longer than to count."""
        self._queue_wait = Histogram(
            "paddlecloud_queue_wait_seconds",
            "Time that an attempt of a job waited until this server placed it",
            ("pool",),
            buckets=_WAIT,
            registry=self._registry,
        )
        self._submit_to_start = Histogram(
            "paddlecloud_submit_to_start_seconds",
            "Time from the submit of a job until its first start, as reported to this server",
            ("pool",),
            buckets=_WAIT,
            registry=self._registry,
        )
        self._plan = Histogram(
            "paddlecloud_plan_seconds",
            "Time of one round of the scheduler of this server",
            buckets=_PLAN,
            registry=self._registry,
        )
        self._outbox = {
            outcome: Counter(
                f"paddlecloud_outbox_{outcome}", help_text, ("kind",), registry=self._registry
            )
            for outcome, help_text in (
                ("sent", "Mails and webhooks that this server delivered"),
                ("failed", "Tries that failed and will be repeated"),
                ("given_up", "Mails and webhooks that were given up"),
            )
        }

    def add_pools(self, pools: Iterable[str]) -> None:
        """Report these pools from the start, with zeros: Prometheus sees no increase in the first
        value of a series."""
        for pool in pools:
            self._queue_wait.labels(pool)
            self._submit_to_start.labels(pool)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        series = self._series.get((method, route, status))
        if series is None:
            timed = self._request_seconds.labels(method, route, f"{status // 100}xx")
            series = self._requests.labels(method, route, status), timed
            self._series[method, route, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def placed(self, pool: str, waited: float) -> None:
        self._queue_wait.labels(pool).observe(max(waited, 0.0))

    def started(self, pool: str, waited: float) -> None:
        self._submit_to_start.labels(pool).observe(max(waited, 0.0))

    def planned(self, seconds: float) -> None:
        self._plan.observe(seconds)

    def outbox(self, outcome: str, kind: str) -> None:
        """`outcome`: sent, failed or given_up."""
        self._outbox[outcome].labels(kind).inc()

    def render(self, gauges: Iterable[Gauge]) -> bytes:
        """Everything counted, and the gauges that the caller measured just now."""
        page = CollectorRegistry()
        page.register(_Measured(gauges))
        page.register(self._registry)
        return generate_latest(page)


class _Measured:
    """The gauges of one scrape as a collector."""

    def __init__(self, gauges: Iterable[Gauge]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for gauge in self._gauges:
            if not gauge.values:
                continue
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in gauge.values.items():
                family.add_metric(labels, value)
            yield family
