"""A kubeconfig for one server and one user."""

from __future__ import annotations

import json


def kubeconfig(url: str, token: str | None, certificate_authority: str | None) -> str:
    """Its text: JSON, which is YAML."""
    cluster = {"server": url}
    if certificate_authority is not None:
        cluster["certificate-authority"] = certificate_authority
    name = "shmcache-testing"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {} if token is None else {"token": token}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
            ],
            "current-context": name,
        },
        indent=2,
    )
