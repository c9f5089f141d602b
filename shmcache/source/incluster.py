"""The configuration of a pod: its service account. The kubelet rotates the token."""

from __future__ import annotations

import os

from shmcache.errors import SourceError
from shmcache.protocol.urls import server_url
from shmcache.reasons import reason_at
from shmcache.source.access import ServerAccess, environment_proxy, read_token, tls_context

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


def in_cluster() -> ServerAccess:
    """Of the pod that this process runs in; the token is read for every request."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SourceError(
            "in-cluster configuration: KUBERNETES_SERVICE_HOST or _PORT is not set: not a pod"
        )
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    if server_url(url) is None:
        raise SourceError(
            "in-cluster configuration: KUBERNETES_SERVICE_HOST and _PORT are not an address: "
            f"{host!r}, {port!r}"
        )
    token_file = os.path.join(FOLDER, "token")
    try:
        read_token(token_file)
        authority, namespace = _read("ca.crt"), _read("namespace").decode().strip()
    except UnicodeDecodeError as error:
        raise SourceError("in-cluster configuration: the namespace is not text") from error
    except (SourceError, OSError) as error:
        raise SourceError(f"in-cluster configuration: {reason_at(error)}") from error
    tls, material = tls_context(ca=authority, label="in-cluster configuration")
    return ServerAccess(
        url=url,
        namespace=namespace,
        token_file=token_file,
        tls=tls,
        tls_material=material,
        proxy=environment_proxy(url),
    )


def _read(name: str) -> bytes:
    path = os.path.join(FOLDER, name)
    with open(path, "rb") as file:
        found = file.read()
    if not found:
        raise SourceError(f"{path} is empty")
    return found
