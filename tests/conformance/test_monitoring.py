"""The dashboard and the alerts of deploy/monitoring, against a real Prometheus and a real cache."""

from __future__ import annotations

import json
import runpy
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache.testing import ApiServer

PLACE = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="apt-get install prometheus"
)
PATIENCE = 60.0


def test_the_dashboard_is_the_one_that_its_program_writes() -> None:
    made = runpy.run_path(str(PLACE / "dashboard.py"))["dashboard"]()
    assert json.loads((PLACE / "dashboard.json").read_text()) == made


@needs_prometheus
def test_each_alert_fires_for_its_fault_alone() -> None:
    argv = ["promtool", "test", "rules", str(PLACE / "alerts_test.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_runbook_exists() -> None:
    root = PLACE.parents[1]
    lines = (PLACE / "alerts.yaml").read_text().splitlines()
    found = [line.split()[1] for line in lines if "runbook_url" in line]
    assert len(found) == sum("- alert:" in line for line in lines)
    assert [one for one in found if not (root / one).exists()] == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        port: int = made.getsockname()[1]
        return port


@pytest.fixture
def scraped(name: str, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes a cache at work."""
    metrics, port = free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 500ms}}\nrule_files: [{PLACE / 'alerts.yaml'}]\n"
        f"scrape_configs: [{{job_name: s, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]"
    )
    run = [sys.executable, "-m", "shmcache", "run", "pods", "--cache", name,
           "--listen", f"127.0.0.1:{metrics}"]  # fmt: skip
    prometheus = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}",
                  f"--storage.tsdb.path={tmp_path / 'data'}", "--log.level=error",
                  f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with ApiServer() as api:
        made = [subprocess.Popen([*run, "-s", api.url], stderr=subprocess.DEVNULL),
                subprocess.Popen(prometheus)]  # fmt: skip
        try:
            with shmcache.attach(name, timeout=PATIENCE) as cache:
                queue = cache.queue("work")
                cache["pods"].add_handler(on_add=lambda new, _: queue.add(new["metadata"]["name"]))
                cache.start()
                for number in range(3):
                    api.create("pods", _pod(number))
                    key = queue.get(timeout=PATIENCE)
                    assert key is not None
                    queue.done(key)
                yield f"http://127.0.0.1:{port}"
                queue.close()
        finally:
            for process in made:
                process.terminate()
                process.wait(PATIENCE)


def _pod(number: int) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"p{number}", "namespace": "a"},
    }


def _result(url: str, query: str) -> list[Any]:
    asked = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - of this machine
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


@needs_prometheus
def test_every_panel_has_data(scraped: str) -> None:
    panels = json.loads((PLACE / "dashboard.json").read_text())["panels"]
    queries = {
        target["expr"].replace("$__rate_interval", "1m").replace("$cache", ".*")
        for panel in panels
        for target in panel.get("targets", ())
    }
    deadline = time.monotonic() + PATIENCE
    while queries := {query for query in queries if not _result(scraped, query)}:
        assert time.monotonic() < deadline, queries
        time.sleep(0.2)
