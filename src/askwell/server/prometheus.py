"""Figures for Prometheus: what was asked, how long it took, what is waiting and what is loaded."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from askwell.server.service import Service


class _State(Collector):
    """Reads the state of the service whenever it is scraped."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the current figures."""
        service, counts = self._service, self._service.queue.counts
        for name, what, value in (
            ("asked", "x's that went through an LM", counts.asked),
            ("from_cache", "x's whose answers were known", counts.from_cache),
            ("batches", "batches that went through an LM", counts.batches),
            ("refused", "requests refused because the queue was full", counts.refused),
            ("cancelled", "requests whose client disconnected", counts.cancelled),
        ):
            yield CounterMetricFamily(f"askwell_{name}", what, value)
        jobs = service.jobs.all()
        for name, what, value in (
            ("queue_waiting", "x's that are waiting", service.queue.waiting),
            ("queue_places", "x's that can wait", service.settings.places),
            ("loaded_lms", "LMs that are loaded", len(service.loaded.names)),
            ("loaded_lm_bytes", "bytes of the LMs that are loaded", service.loaded.bytes),
            ("unfinished_jobs", "training jobs that are waiting or running", sum(not job.is_over for job in jobs)),
        ):
            yield GaugeMetricFamily(f"askwell_{name}", what, value)


class _Labelled(Collector):
    """The figures of other collectors, labelled by replica, so that they do not seem to jump between scrapes."""

    def __init__(self, collectors: CollectorRegistry, replica: str) -> None:
        self._collectors, self._replica = collectors, replica

    def collect(self) -> Iterator[Metric]:
        """Yield the same figures, labelled."""
        for metric in self._collectors.collect():
            labels = {"replica": self._replica}
            metric.samples = [one._replace(labels={**one.labels, **labels}) for one in metric.samples]
            yield metric


class Metrics:
    """The figures of one service; if several replicas share an address, each labels its figures with its name."""

    def __init__(self, service: Service, replica: str | None = None) -> None:
        self._collectors = CollectorRegistry()  # only of this service, not of the process
        self._shown = self._collectors
        if replica is not None:
            self._shown = CollectorRegistry()
            self._shown.register(_Labelled(self._collectors, replica))
        self._collectors.register(_State(service))
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        no_prefix = ("", "", "")  # neither namespace, subsystem nor unit
        self._requests = Counter(
            "askwell_requests", "requests by route and status", ["route", "status"], *no_prefix, self._collectors
        )
        self._seconds = Histogram(
            "askwell_request_seconds", "how long requests took", ["route"], *no_prefix, self._collectors
        )

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        if (route, status) not in self._children:
            self._children[route, status] = self._requests.labels(route, str(status)), self._seconds.labels(route)
        requests, times = self._children[route, status]
        requests.inc()
        times.observe(seconds)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._shown)
