"""Discovery documents: how clients find out which resources there are, and how they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shmcache.protocol.kinds import Kind

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.4",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "gc",
    "platform": "linux/amd64",
}
"""/version of the server whose rules are followed."""
AGGREGATED_MEDIA = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
Document = dict[str, Any]
Groups = Mapping[str, Mapping[str, Sequence[Kind]]]
"""group -> version -> resources; the first version of a group is the preferred one."""


def core_versions(address: str) -> Document:
    """/api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(groups: Groups) -> Document:
    """/apis: every group but the core."""
    found = [_group(name, versions) for name, versions in groups.items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(name: str, versions: Iterable[str]) -> Document:
    """/apis/<group>."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: Iterable[str]) -> Document:
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def resource_list(api_version: str, kinds: Iterable[Kind]) -> Document:
    """/api/v1, /apis/<group>/<version>."""
    rows = [row for kind in sorted(kinds, key=lambda kind: kind.resource) for row in _rows(kind)]
    core = {} if api_version == "v1" else {"apiVersion": "v1"}
    return {"kind": "APIResourceList", **core, "groupVersion": api_version, "resources": rows}


def _rows(kind: Kind) -> list[Document]:
    names = {"singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    row: Document = {"name": kind.resource, **names, "verbs": list(kind.verbs)}
    if kind.short_names:
        row["shortNames"] = list(kind.short_names)
    if kind.categories:
        row["categories"] = list(kind.categories)
    if not kind.status:
        return [row]
    verbs = ["get", "patch", "update"]
    status = {"name": f"{kind.resource}/status", **names, "singularName": "", "verbs": verbs}
    return [row, status]


def is_aggregated(path: str, accept: str) -> bool:
    """Whether a request asks for all groups in one document, which /api and /apis alone can be."""
    asked = [{part.strip() for part in clause.split(";")} for clause in accept.split(",")]
    wanted = {"as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2"}
    return path.strip("/") in {"api", "apis"} and any(wanted <= clause for clause in asked)


def aggregated(groups: Groups, *, core: bool) -> Document:
    """/api and /apis in one document each, as clients ask for it since 1.26."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {},
            "versions": [
                {
                    "version": version,
                    "resources": [_described(kind) for kind in kinds],
                    "freshness": "Current",
                }
                for version, kinds in versions.items()
            ],
        }
        for name, versions in groups.items()
        if bool(name) != core and versions
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _described(kind: Kind) -> Document:
    names = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    row: Document = {
        "resource": kind.resource,
        "responseKind": names,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        row["shortNames"] = list(kind.short_names)
    if kind.categories:
        row["categories"] = list(kind.categories)
    return row


def openapi(prefix: str, kinds: Iterable[Kind]) -> Document:
    """/openapi/v3/<prefix>: that PATCH takes dryRun and fieldValidation; no schemas of types."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": {
            f"/{prefix}/{_scope(kind)}{kind.resource}/{{name}}": {
                "patch": _patch(kind),
                "parameters": _place(kind),
            }
            for kind in kinds
        },
    }


def _place(kind: Kind) -> list[Document]:
    names = ("name", "namespace") if kind.namespaced else ("name",)
    schema = {"type": "string", "uniqueItems": True}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]


def _scope(kind: Kind) -> str:
    return "namespaces/{namespace}/" if kind.namespaced else ""


def _patch(kind: Kind) -> Document:
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    return {
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in names
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "kind": kind.kind,
            "version": kind.version,
        },
    }
