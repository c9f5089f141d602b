"""Invariant tested: OpenTelemetry's SDK sees the metrics of `shmcache metrics`, with one look for
each collection (OTEL1), also those that appear later (OTEL2); spans carry keys, results, errors."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from workers import eventually

import shmcache
from shmcache.controllers.outcomes import Requeue
from shmcache.monitor.families import Families
from shmcache.monitor.metering import Meter

pytest.importorskip("opentelemetry.sdk", reason="needs the SDK: pip install opentelemetry-sdk")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.trace import StatusCode

from shmcache.integrations import telemetry

POD = {"metadata": {"namespace": "shop", "name": "web-0", "resourceVersion": "7"}}
MOVING = ("age", "heartbeat", "_bytes", "verified")
"""Of metrics that differ between two looks."""


class Collector:
    """An SDK that keeps what it collects."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def points(self) -> dict[tuple[str, tuple[tuple[str, Any], ...]], float]:
        found = {}
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert ("shmcache", shmcache.__version__) == (scope.scope.name, scope.scope.version)
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        labels = tuple(sorted(dict(point.attributes or {}).items()))
                        found[metric.name, labels] = float(point.value)  # type: ignore[union-attr]
        return found


@pytest.fixture
def writer(name: str) -> Any:
    with shmcache.Writer(name, resources=["pods"]) as writer:
        writer.apply("pods", [POD])
        yield writer


@pytest.fixture
def collector() -> Any:
    made = Collector()
    yield made
    made.provider.shutdown()


def samples(cache: shmcache.Cache) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (family.name.removesuffix("_total") + suffix, tuple(sorted(labels.items()))): value
        for family in Meter(cache).families().values()
        for suffix, labels, value in family.samples
    }


def test_the_sdk_sees_every_metric(writer: shmcache.Writer, collector: Collector) -> None:
    with shmcache.attach(writer.name) as cache:
        telemetry.observe(cache, collector.provider)
        commits = ("shmcache_commits", (("cache", writer.name),))
        eventually(lambda: samples(cache)[commits], "the writer's thread published no counters")
        wanted = samples(cache)

        found = collector.points()

    assert set(wanted) == set(found)
    fixed = [key for key in wanted if not any(word in key[0] for word in MOVING)]
    assert len(fixed) > 20
    assert {key: wanted[key] for key in fixed} == {key: found[key] for key in fixed}


def test_one_collection_looks_once(
    writer: shmcache.Writer, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Families] = []
    families = Meter.families

    def counted(self: Meter) -> Families:
        looks.append(families(self))
        return looks[-1]

    monkeypatch.setattr(Meter, "families", counted)
    with shmcache.attach(writer.name) as cache:
        telemetry.observe(cache, collector.provider)
        looks.clear()

        for number in range(1, 4):
            writer.apply("pods", [POD])
            found = collector.points()
            assert number == len(looks)
            [(_, _, commits)] = looks[-1]["shmcache_commits_total"].samples
            assert commits == found["shmcache_commits", (("cache", writer.name),)]


def test_a_queue_that_appears_later_is_collected(
    writer: shmcache.Writer, collector: Collector
) -> None:
    with shmcache.attach(writer.name) as cache:
        telemetry.observe(cache, collector.provider)
        assert not any(name.startswith("workqueue") for name, _ in collector.points())
        with cache.queue("later") as queue:
            queue.add("shop/web-0")

            def depth() -> float | None:
                return collector.points().get(("workqueue_depth", (("name", "later"),)))

            eventually(lambda: depth() == 1.0, "the new queue has no metrics")
            sums = {name for name, _ in collector.points() if name.startswith("workqueue_work")}
    assert {"workqueue_work_duration_seconds_sum", "workqueue_work_duration_seconds_count"} == sums


def test_units_and_kinds_reach_the_sdk(writer: shmcache.Writer, collector: Collector) -> None:
    with shmcache.attach(writer.name) as cache:
        telemetry.observe(cache, collector.provider)
        data = collector.reader.get_metrics_data()
    assert data is not None
    by_name = {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }

    assert "s" == by_name["shmcache_writer_heartbeat_age_seconds"].unit
    assert "By" == by_name["shmcache_memory_bytes"].unit
    assert by_name["shmcache_commits"].data.is_monotonic  # type: ignore[union-attr]
    assert by_name["shmcache_commits"].description


def test_a_closed_cache_has_no_metrics(writer: shmcache.Writer, collector: Collector) -> None:
    cache = shmcache.attach(writer.name)
    telemetry.observe(cache, collector.provider)
    assert collector.points()
    cache.close()

    assert {} == collector.points()


# ---- spans ---------------------------------------------------------------------------------------


class Tracer:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (span.name.rpartition(".")[2], dict(span.attributes or {}))
            for span in self.exporter.get_finished_spans()
        ]


@pytest.fixture
def tracer() -> Any:
    made = Tracer()
    yield made
    made.provider.shutdown()


def test_handlers_get_a_span_for_each_event(writer: shmcache.Writer, tracer: Tracer) -> None:
    def added(_pod: Any, _initial: bool) -> None:
        pass

    def updated(_old: Any, _new: Any) -> None:
        pass

    def deleted(_pod: Any, _unknown: bool) -> None:
        pass

    to = tracer.provider
    with shmcache.attach(writer.name) as cache:
        cache["pods"].add_handler(
            on_add=telemetry.traced(added, to),
            on_update=telemetry.traced(updated, to),
            on_delete=telemetry.traced(deleted, to),
        )
        cache.start()
        eventually(lambda: tracer.spans(), "no span of the first object")
        writer.apply("pods", [{"metadata": {**POD["metadata"], "resourceVersion": "8"}}])
        eventually(lambda: len(tracer.spans()) == 2, "no span of the update")
        writer.delete("pods", "shop/web-0")
        eventually(lambda: len(tracer.spans()) == 3, "no span of the deletion")

    key = {"shmcache.key": "shop/web-0"}
    assert [
        ("added", {**key, "shmcache.resource_version": "7"}),
        ("updated", {**key, "shmcache.resource_version": "8"}),
        ("deleted", {**key, "shmcache.resource_version": "8"}),
    ] == tracer.spans()


def test_a_reconcile_has_its_key_and_its_result(tracer: Tracer) -> None:
    def reconcile(_key: str, _cache: Any) -> Any:
        return Requeue(after=5)

    assert Requeue(after=5) == telemetry.traced(reconcile, tracer.provider)("shop/web-0", None)

    wanted = {"shmcache.key": "shop/web-0", "shmcache.result": "Requeue(after=5)"}
    assert [("reconcile", wanted)] == tracer.spans()


def test_coroutine_functions_stay_coroutine_functions(tracer: Tracer) -> None:
    inside = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(0)
        inside.append((key, len(tracer.spans())))

    function = telemetry.traced(reconcile, tracer.provider)

    assert inspect.iscoroutinefunction(function)
    asyncio.run(function("a/b"))
    assert [("a/b", 0)] == inside  # the span was open still
    assert [("reconcile", {"shmcache.key": "a/b"})] == tracer.spans()


def test_an_error_ends_the_span_and_is_raised(tracer: Tracer) -> None:
    def reconcile(_key: str) -> None:
        raise ValueError("no such node")

    with pytest.raises(ValueError, match="no such node"):
        telemetry.traced(reconcile, tracer.provider)("a/b")

    [span] = tracer.exporter.get_finished_spans()
    assert StatusCode.ERROR is span.status.status_code
    assert ["exception"] == [event.name for event in span.events]


def test_without_an_sdk_a_function_works_as_before() -> None:
    def double(number: int) -> int:
        return 2 * number

    assert 8 == telemetry.traced(double)(4)
    assert "double" == telemetry.traced(double).__name__
