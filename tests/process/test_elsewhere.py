"""Invariant tested: where the extensions and modules of Unix are missing, `import shmcache` gives
the private cache: a program, a cluster for tests and the plugin work, and a warning comes once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120

BLOCK = """
import sys
import sysconfig

MISSING = {"shmcache._hot", "shmcache._core", "_cffi_backend", "cffi", "posix_ipc", "fcntl",
           "resource", "pwd", "grp", "termios", "syslog"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in MISSING:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
sys.abiflags = ""
"""
"""Modules that another system does not have are missing."""


def ran(program: str, place: Path, *arguments: str, **more: str) -> str:
    """The output of a program with another system's modules, and shmcache in its path."""
    (place / "sitecustomize.py").write_text(BLOCK)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{place}{os.pathsep}{ROOT}",
        "SHMCACHE_PORTABLE": "1",
        **more,
    }
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, *(arguments or ("-c", textwrap.dedent(program)))],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_program_reads_its_own_cache(tmp_path: Path) -> None:
    program = """
        import shmcache
        from shmcache.integrations import attached

        pods = shmcache.Resource("pods", {"node": "spec.nodeName"})
        with shmcache.Writer("here", [pods]) as writer:
            writer.replace("pods", [{"metadata": {"name": "a", "namespace": "b"},
                                     "spec": {"nodeName": "n"}}], "7")
            writer.set_state("pods", 2)
            with shmcache.attach("here") as cache, shmcache.attach("here") as again:
                assert isinstance(cache, shmcache.Cache)
                assert isinstance(cache["pods"]["b/a"], shmcache.View)
                assert "n" == again["pods"].by_index("node", "n")[0].spec.nodeName
                assert ["b/a"] == list(attached("here")["pods"])
        try:
            shmcache.controller
        except shmcache.ShmCacheError as error:
            print(error)
        print(sorted(name for name in vars(shmcache) if name == "Cursor"))
    """
    text = ran(program, tmp_path)

    assert 1 == text.count("RuntimeWarning: this cache is private to its process")
    assert "shmcache.controller needs the cache in shared memory, and so Linux" in text
    assert "[]" in text.splitlines()


def test_a_cluster_for_tests_is_followed(tmp_path: Path) -> None:
    program = """
        import time
        from shmcache.testing import Cluster

        def pod(name, **more):
            return {"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "namespace": "prod", "labels": more}}

        with Cluster() as cluster:
            cluster.create(pod("a", app="web"))
            indices = {"pods": {"app": "metadata.labels.app"}}
            cache = cluster.reflect("pods", "deployments.apps", indices=indices)
            seen = []
            registration = cache["po"].add_handler(
                on_add=lambda obj, initial: seen.append((obj.metadata.name, initial)),
                on_delete=lambda obj, unknown: seen.append((obj.metadata.name, "deleted")))
            cache.start()
            assert registration.wait_synced(60)
            [made] = cluster.create(pod("b", app="web"))
            assert cache["pods"].wait_for(made["metadata"]["resourceVersion"], 60)
            assert ["prod/a", "prod/b"] == cache["pods"].index_keys("app", "web")
            assert "Pod" == cache["pods"]["prod/a"].kind
            cluster.server.delete("pods", "prod/a")
            cluster.settle(60)
            deadline = time.monotonic() + 60
            while len(seen) < 3:
                assert time.monotonic() < deadline, seen
                time.sleep(0.01)
            cluster.server.compact()
            cluster.server.abort_connections()  # the watch cannot go on: a new list
            cluster.create(pod("c"))
            cluster.settle(60)
            assert ["prod/b", "prod/c"] == list(cache["pods"])
            print(seen[:3], cache["pods"].status.state, cache["pods"].age < 60)
    """
    wanted = "[('a', True), ('b', False), ('a', 'deleted')] synced True"
    assert wanted in ran(program, tmp_path)


def test_the_pytest_plugin_works(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent("""
        import pytest

        POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "prod"}}

        @pytest.mark.shmcache("pods", "nodes", objects=[POD])
        def test_it(shmcache_cache, shmcache_cluster):
            assert ["prod/a"] == list(shmcache_cache["pods"])
            shmcache_cluster.create({**POD, "metadata": {"name": "b", "namespace": "prod"}})
            shmcache_cluster.settle()
            assert 2 == len(shmcache_cache["pods"])

        def test_default(shmcache_cache):
            assert ("pods",) == shmcache_cache.resources
        """)
    )
    text = ran(
        "", tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler"
    )

    assert "2 passed" in text


@pytest.mark.parametrize("value", ["", "0"])
def test_linux_has_the_shared_cache_unless_it_is_refused(value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import shmcache; print(shmcache.Cache.__module__)"],
        env={**os.environ, "SHMCACHE_PORTABLE": value},
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip

    assert "shmcache.reader.cache" == done.stdout.strip()
