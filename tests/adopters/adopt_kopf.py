"""Invariant tested: operators on kopf follow `shmcache serve`; the API server sees one watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from shmcache.serve.proxy.proxy import Proxy
from shmcache.testing import Cluster
from shmcache.testing.serving import ServeThread

OPERATOR = Path(__file__).parent / "operator_of_kopf.py"
OPERATORS = 3


def pod(name: str, app: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "prod", "name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


@contextmanager
def operator(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kopf", "run", str(OPERATOR), "--standalone", "-A", "--quiet"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"SERVER": url}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def seen(process: subprocess.Popen[str], kind: str | None, name: str) -> list[str]:
    """Reads until this event; the index at that moment."""
    assert process.stdout is not None
    for line in process.stdout:
        event, about, web = json.loads(line)
        if (event, about) == (kind, name):
            return list(web)
    raise AssertionError(f"the operator ended without {kind} of {name}")


def test_operators_share_one_watch() -> None:
    with Cluster() as cluster, ExitStack() as stack:
        cluster.create(pod("web-0", "web"), pod("db-0", "db"))
        cache = cluster.reflect("pods")
        serve = ServeThread(cache)
        serve.server.proxy = Proxy(serve.server.loop, cluster.url)
        stack.enter_context(serve)
        operators = [stack.enter_context(operator(serve.url)) for _ in range(OPERATORS)]
        for one in operators:
            assert "web-0" in seen(one, None, "web-0")
        cluster.create(pod("web-1", "web"))
        for one in operators:
            assert seen(one, "ADDED", "web-1") == ["web-0", "web-1"]
        cluster.server.delete("pods", "web-0", "prod")
        for one in operators:
            seen(one, "DELETED", "web-0")
        assert cluster.server.requests["watch", "pods"] == 1
