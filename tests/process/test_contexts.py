"""Several clusters: one supervisor, a process and a cache for each context."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache.engine import config
from shmcache.engine.config.keys import ConfigurationError
from shmcache.memory.contexts import context_name
from shmcache.memory.segments import Place
from shmcache.testing import ApiServer

ARN = "arn:aws:eks:eu-west-1:123456789012:cluster/production"
PATIENCE = 60.0


def test_names_of_contexts() -> None:
    assert context_name("web", "staging") == "web-staging"
    assert context_name("web", ARN).startswith("web-arn-aws-eks-eu-west-1-123456789012-cluster")
    names = {
        context_name("web", each) for each in ("a/b", "a:b", "a-b", "a b", "x" * 200, "x" * 201)
    }
    assert len(names) == 6
    assert all(Place(name).name == name for name in names)
    with pytest.raises(ValueError, match="a context must be the name of one in a kubeconfig"):
        context_name("web", "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"context": "c"}, "--context is for one cluster, and there are 2 contexts"),
        ({"listen": ":8080"}, "--listen is for one cluster"),
        ({"server": "http://x"}, "--server is for one cluster"),
        ({"contexts": ["a", "a"]}, "contexts must not be empty or repeated: 'a', 'a'"),
    ],
)
def test_flags_of_one_cluster_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config.load(None, {"resources": {"pods": {}}, "contexts": ["a", "b"], **more}, {})


@pytest.mark.slow
@pytest.mark.parametrize("way", ["flags", "toml"])
def test_each_context_has_a_cache(name: str, tmp_path: Path, way: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with ApiServer() as first, ApiServer() as second:
        servers = {"staging": first, ARN: second}
        for context, server in servers.items():
            pod = {"metadata": {"namespace": "prod", "name": f"of-{context[:3]}"}}
            server.create("pods", pod)
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": each, "cluster": {"server": server.url}}
                        for each, server in servers.items()
                    ],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [
                        {"name": each, "context": {"cluster": each, "user": "u"}}
                        for each in servers
                    ],
                }
            )
        )
        settings = ["--cache", name, "--kubeconfig", str(kubeconfig), "--no-keep"]
        if way == "flags":
            settings += ["pods", *(word for each in servers for word in ("--context", each))]
        else:
            file = tmp_path / "cache.toml"
            file.write_text(f"contexts = {json.dumps(list(servers))}\n[resources.pods]\n")
            settings += ["--config", str(file)]
        process = subprocess.Popen([sys.executable, "-m", "shmcache", "run", *settings])
        try:
            caches = {
                each: shmcache.attach(name, context=each, timeout=PATIENCE) for each in servers
            }
            for context, cache in caches.items():
                assert cache["pods"].wait_synced(PATIENCE)
                assert list(cache["pods"]) == [f"prod/of-{context[:3]}"]
                cache.close()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    for each in servers:
        with pytest.raises(shmcache.SegmentNotFound):
            shmcache.attach(name, context=each)
        Place(context_name(name, each)).unlink()
