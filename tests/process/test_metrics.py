"""Invariant tested: any one process reports on all of them; probes agree with what a person would
see."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from workers import Command, eventually

import shmcache
from shmcache.monitor import metrics
from shmcache.monitor.families import Families, render
from shmcache.monitor.health import Endpoint
from shmcache.monitor.metrics_server import MetricsServer, parse
from shmcache.monitor.observing import observe
from shmcache.testing import ApiServer

prometheus = pytest.importorskip(
    "prometheus_client", reason="needs prometheus_client: pip install prometheus_client"
)
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def name() -> str:
    return f"metrics-{os.getpid()}"


@pytest.fixture
def writer(name: str) -> Iterator[shmcache.Writer]:
    with shmcache.Writer(name, resources=["pods", "widgets.example.com/v1"]) as made:
        made.apply("pods", [{"metadata": {"name": f"p-{n}", "namespace": "x"}} for n in range(7)])
        made.set_state("pods", 2, "12345678901234567")
        made.note("pods", contact_ns=time.monotonic_ns(), lists=2, watches=3, events=5, bytes=900)
        yield made


@pytest.fixture
def cache(writer: shmcache.Writer, name: str) -> Iterator[shmcache.Cache]:
    del writer
    with shmcache.attach(name) as attached:
        yield attached


def samples(text: str) -> Samples:
    """The page as Prometheus's own parser reads it; each sample once."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.type in {"counter", "gauge", "histogram", "summary"}, family
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Samples, metric: str, **labels: str) -> float:
    """The one sample of this name whose labels include these."""
    fits = [
        number
        for (name, has), number in found.items()
        if name == metric and set(labels.items()) <= has
    ]
    assert 1 == len(fits), (metric, labels, fits)
    return fits[0]


def test_metrics_of_the_server_have_client_gos_names(cache: shmcache.Cache) -> None:
    found = samples(metrics.Meter(cache).text())

    assert 2 == value(found, "reflector_lists_total", name="pods")
    assert 3 == value(found, "reflector_watches_total", name="pods")
    assert 345678901234567 == value(found, "reflector_last_resource_version", name="pods")
    assert 5 == value(found, "shmcache_resource_events_total", resource="pods")
    assert 7 == value(found, "shmcache_resource_objects", resource="pods")
    assert 1 == value(found, "shmcache_resource_state", resource="pods", state="synced")
    assert 0 == value(found, "shmcache_resource_state", resource="pods", state="stale")
    assert PATIENCE > value(found, "shmcache_resource_age_seconds", resource="pods")
    assert 0 < value(found, "shmcache_resource_bytes", resource="pods", kind="values")
    assert 1 == value(found, "shmcache_up")
    assert 1 == value(found, "shmcache_verified")


COUNTED = {
    "relists": "shmcache_resource_relists_total",
    "bookmarks": "shmcache_resource_bookmarks_total",
    "errors": "shmcache_resource_errors_total",
    "bytes": "shmcache_resource_received_bytes_total",
    "refused": "shmcache_resource_refused_total",
    "repaired": "shmcache_resource_repaired_total",
    "cut": "shmcache_resource_watches_cut_total",
}


def test_each_count_and_fact_of_a_cache_has_its_metric(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.note("widgets.example.com/v1", **{each: 10 + at for at, each in enumerate(COUNTED)})
    eventually(lambda: observe(cache).stats["deltas"], "the writer has not tended its counts")
    with cache.snapshot():
        found = samples(metrics.Meter(cache).text())

    widgets = {"resource": "widgets.example.com/v1"}
    assert {each: 10 + at for at, each in enumerate(COUNTED)} == {
        each: value(found, metric, **widgets) for each, metric in COUNTED.items()
    }
    assert [1, 0] == [
        value(found, "shmcache_resource_synced", resource=each)
        for each in ("pods", widgets["resource"])
    ]
    assert 1 == value(found, "shmcache_info", cache=cache.name, version=shmcache.__version__)
    assert 1 == value(found, "shmcache_writer_incarnation")
    assert PATIENCE > value(found, "shmcache_writer_heartbeat_age_seconds")
    assert 345678901234567 == value(found, "informer_store_resource_version", resource="pods")
    size, most = (value(found, "shmcache_memory_bytes", kind=each) for each in ("bytes", "maximum"))
    assert 0 < size <= most
    assert 7 == value(found, "shmcache_deltas_total")
    assert 0 < value(found, "shmcache_commits_total")
    assert 7 == value(found, "shmcache_window_deltas")
    assert 1 == value(found, "shmcache_workers") < value(found, "shmcache_seats")
    assert 1 == value(found, "shmcache_worker_pins", pid=str(os.getpid()))
    assert 1 << 20 < value(found, "shmcache_worker_private_bytes", pid=str(os.getpid()))


def test_the_time_to_store_events_has_client_gos_name(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    writer.note(
        "pods", stored=9, storing_ns=1_500_000_000, stored_1ms=4, stored_10ms=4, stored_100ms=6
    )
    writer.note("pods", stored=1, storing_ns=5_000_000, stored_10ms=1, stored_100ms=1)
    found = samples(metrics.Meter(cache).text())

    name = "informer_processing_latency_seconds"
    labels = {"name": cache.name, "group": "", "resource": "pods"}
    shown = {le: value(found, f"{name}_bucket", le=le, **labels) for le in BOUNDS}
    assert shown == {"0.001": 4, "0.01": 5, "0.1": 7, "+Inf": 10}
    assert value(found, f"{name}_sum", **labels) == 1.505
    assert value(found, f"{name}_count", **labels) == 10
    assert "stored" not in cache["pods"].status.counters


BOUNDS = ("0.001", "0.01", "0.1", "+Inf")


def test_a_name_with_quotes_and_newlines_stays_one_label() -> None:
    families = Families()
    families.gauge("odd", "of\nseveral \\ lines").add(1.5, label='a"b\\c\nd')

    assert {("odd", frozenset({("label", 'a"b\\c\nd')})): 1.5} == samples(render(families))


FOLLOWER = """
import sys, shmcache
cache = shmcache.attach(sys.argv[1])
cursor = cache.follow(["pods"])
print("ready", flush=True)
sys.stdin.readline()
print(len(cursor.take()), flush=True)
sys.stdin.readline()
cache.wait(cursor, 0.01)
print("rested", flush=True)
sys.stdin.readline()
"""


def test_lag_of_a_worker_is_visible_from_any_other_process(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    """G35."""
    with Command(
        [sys.executable, "-c", FOLLOWER, cache.name], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as worker:  # fmt: skip
        assert worker.stdout is not None
        assert worker.stdin is not None
        pid = str(worker.pid)
        assert "ready\n" == worker.stdout.readline()
        meter = metrics.Meter(cache)

        for number in range(5):
            writer.apply("pods", [{"metadata": {"name": f"q-{number}", "namespace": "x"}}])
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert "5\n" == worker.stdout.readline()
        behind = samples(meter.text())
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert "rested\n" == worker.stdout.readline()
        rested = samples(meter.text())
        worker.stdin.write("\n")
        worker.stdin.flush()

    assert 5 == value(behind, "shmcache_worker_lag_deltas", pid=pid)  # taken, but not handled yet
    for found, waiting in ((behind, 5), (rested, 0)):
        labels = {"name": cache.name, "group": "", "resource": "pods"}
        assert waiting == value(found, "informer_queued_items", **labels)
        labels = {
            "name": cache.name,
            "group": "example.com",
            "version": "v1",
            "resource": "widgets",
        }
        assert value(found, "informer_queued_items", **labels) == 0
    assert 0 == value(rested, "shmcache_worker_lag_deltas", pid=pid)
    assert 5 == value(rested, "shmcache_worker_taken_total", pid=pid)
    assert 0 == value(rested, "shmcache_worker_lapped_total", pid=pid)
    gone = samples(meter.text())
    assert not [key for key in gone if ("pid", pid) in key[1]]


def test_queues_are_reported_under_client_gos_names(cache: shmcache.Cache) -> None:
    queue = cache.queue("deployments.apps", base_delay=900.0)
    queue.add("a/b")
    queue.add("a/c")
    taken = queue.get(PATIENCE)
    queue.add_after("a/d", 600)
    queue.add_after("a/e", 600)
    queue.add_rate_limited("a/e")
    queue.forget("a/d")
    time.sleep(0.02)

    found = samples(metrics.Meter(cache).text())

    assert 1 == value(found, "workqueue_depth", name="deployments.apps")
    assert 2 == value(found, "workqueue_adds_total", name="deployments.apps")
    assert 1 == value(found, "workqueue_queue_duration_seconds_count", name="deployments.apps")
    assert 0 <= value(found, "workqueue_unfinished_work_seconds", name="deployments.apps")
    assert 2 == value(found, "shmcache_workqueue_delayed", name="deployments.apps")
    assert 1 == value(found, "shmcache_workqueue_in_progress", name="deployments.apps")
    assert 1 == value(found, "shmcache_workqueue_failing", name="deployments.apps")
    assert 0.02 <= value(found, "shmcache_workqueue_oldest_seconds", name="deployments.apps")
    assert taken is not None
    queue.done(taken)


def test_a_collector_reports_the_same_in_a_registry(cache: shmcache.Cache) -> None:
    registry = prometheus.CollectorRegistry()
    registry.register(metrics.Collector(cache))

    theirs = samples(prometheus.generate_latest(registry).decode())
    ours = samples(metrics.Meter(cache).text())

    assert set(ours) == set(theirs)


# ---- probes --------------------------------------------------------------------------------------


def asked(endpoint: Endpoint, path: str, query: str = "") -> tuple[int, str]:
    answer = endpoint.answer(path, query)
    return int(answer.status_line[:3]), answer.body.decode()


def test_readiness_needs_every_first_list_and_names_the_missing_ones(
    writer: shmcache.Writer, cache: shmcache.Cache
) -> None:
    endpoint = Endpoint(cache=cache)
    writer.set_state("widgets.example.com/v1", 1, reason="first list")

    status, text = asked(endpoint, "/readyz")

    assert 503 == status
    assert "[-]widgets.example.com/v1 failed: listing: first list\nreadyz check failed\n" == text
    assert (200, "ok") == asked(endpoint, "/livez")
    writer.set_state("widgets.example.com/v1", 0, reason="the server has no such resource")
    assert (200, "ok") == asked(endpoint, "/readyz")
    writer.set_state("pods", 4, reason="silence")
    stale = r"\[-\]pods failed: stale for \d+ s: silence"
    assert re.search(stale, asked(endpoint, "/healthz")[1])
    assert "[+]writer ok" in asked(endpoint, "/healthz", "verbose")[1]
    assert 404 == asked(endpoint, "/")[0]


def test_without_a_cache_probes_fail_and_metrics_report_down(name: str) -> None:
    endpoint = Endpoint(name)

    assert 503 == asked(endpoint, "/readyz")[0]
    status, text = asked(endpoint, "/metrics")
    assert 200 == status
    assert 0 == value(samples(text), "shmcache_up", cache=name)


class Run:
    """`shmcache run --listen`, and the address that it logs."""

    def __init__(self, name: str, server: ApiServer, address: str) -> None:
        command = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name]
        command += ["--server", server.url, "--listen", address, "--no-keep"]
        self.process = Command(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"metrics and probes: (\S+)", line)
            if found:
                break
        else:
            raise AssertionError("".join(self.lines))
        self.url = found[1]
        self._rest = threading.Thread(target=self.process.stderr.read)
        self._rest.start()

    def get(self, path: str) -> tuple[int, str]:
        if self.url.startswith("/"):
            connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(PATIENCE)
            connection.sock.connect(self.url)
        else:
            where = self.url.removeprefix("http://")
            connection = http.client.HTTPConnection(where, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def until(self, path: str, status: int) -> str:
        deadline = time.monotonic() + PATIENCE
        while True:
            found, text = self.get(path)
            if found == status:
                return text
            assert time.monotonic() < deadline, (found, text)
            time.sleep(0.05)

    def end(self) -> int:
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        self._rest.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status


@pytest.mark.slow
@pytest.mark.parametrize("where", ["127.0.0.1:0", "unix"])
def test_run_serves_metrics_and_probes(name: str, where: str, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/metrics" if where == "unix" else where
    with ApiServer(seed=1) as server:
        server.load("pods", {"metadata": {"name": "web-0", "namespace": "default"}})
        run = Run(name, server, address)
        try:
            assert "ok" == run.until("/readyz", 200)
            assert (200, "ok") == run.get("/livez")
            found = samples(run.get("/metrics")[1])
            assert 1 == value(found, "shmcache_resource_objects", resource="pods")
            assert 1 == value(found, "shmcache_workers")  # the endpoint itself
            assert 404 == run.get("/secrets")[0]
        finally:
            assert 0 == run.end()
    assert not os.path.exists(f"{tmp_path}/metrics")


@pytest.mark.slow
def test_a_stopped_writer_fails_the_probe_of_another_process(name: str) -> None:
    with ApiServer(seed=1) as server:
        run = Run(name, server, "127.0.0.1:0")
        try:
            run.until("/readyz", 200)
            with shmcache.attach(name, timeout=PATIENCE) as cache:
                endpoint = Endpoint(cache=cache)
                os.kill(run.process.pid, signal.SIGSTOP)
                deadline = time.monotonic() + PATIENCE
                while asked(endpoint, "/livez")[0] == 200:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                text = asked(endpoint, "/livez")[1]
                os.kill(run.process.pid, signal.SIGCONT)
                while asked(endpoint, "/livez")[0] != 200:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        finally:
            run.end()

    assert re.search(r"writer failed: pid \d+ tended the cache .* ago: it stands still", text)


def test_the_socket_of_a_killed_process_is_taken_over_but_not_that_of_a_living_one(
    cache: shmcache.Cache, tmp_path: Path
) -> None:
    path = f"{tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    served = MetricsServer(f"unix:{path}", Endpoint(cache.name))

    with pytest.raises(OSError, match="another process listens"):
        MetricsServer(f"unix:{path}", Endpoint(cache.name))
    served.close()


@pytest.mark.parametrize("text", ["9090", "host:", "host:x", "host:99999"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ADDRESS:PORT"):
        parse(text)


def test_wsgi_and_asgi_answer_the_same(cache: shmcache.Cache) -> None:
    started: list[Any] = []
    body = b"".join(
        metrics.wsgi_app(cache.name)({"PATH_INFO": "/livez"}, lambda *head: started.append(head))
    )
    sent: list[Any] = []

    async def ask() -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/livez", "query_string": b""}
        await metrics.asgi_app(cache.name)(scope, None, send)

    asyncio.run(ask())

    assert ("200 OK", b"ok") == (started[0][0], body)
    assert (200, b"ok") == (sent[0]["status"], sent[1]["body"])


def test_a_regular_file_at_the_path_of_the_socket_stays(
    cache: shmcache.Cache, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    file.write_text("mine")

    with pytest.raises(FileExistsError, match="not a socket"):
        MetricsServer(f"unix:{file}", Endpoint(cache.name))
    assert file.read_text() == "mine"


def test_slow_clients_of_the_metrics_port_do_not_block_probes(cache: shmcache.Cache) -> None:
    """Each sends a byte now and then; probes are answered all the time."""
    served = MetricsServer("127.0.0.1:0", Endpoint(cache.name))
    port = int(served.url.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            for _ in range(40):
                sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                stack.enter_context(sock).sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX:")
            for path in ("/livez", "/metrics"):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                connection.request("GET", path)
                assert connection.getresponse().status == 200
                connection.close()
    served.close()
