"""A Kubernetes API server for tests: real HTTP, real semantics, an in-memory store, and faults.

    with shmcache.testing.ApiServer() as server:
        server.create("pods", {"metadata": {"name": "a", "namespace": "prod"}, "spec": {}})
        server.kubeconfig("kubeconfig.yaml")        # kubectl --kubeconfig kubeconfig.yaml get pods
        server.faults.cut("watch", "pods")          # the next watch of pods ends within a line
        assert server.requests["list", "pods"] == 1

Its answers are those of kube-apiserver 1.36, compared with recorded ones in tests/conformance.
"""

from shmcache.testing.apiserver.faults import Fault, Faults
from shmcache.testing.apiserver.server import ApiServer

__all__ = ["ApiServer", "Fault", "Faults"]
