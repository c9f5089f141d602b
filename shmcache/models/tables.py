"""The attributes of each client library's models: the tables in this folder, made by generate.py.

The tables are part of the package, so that a worker neither needs nor imports a library whose
models it reads: `kubernetes` 37 alone takes 43 MB and 130 ms.
"""

from __future__ import annotations

import os

LIBRARIES = {
    "kubernetes": {"35": "kubernetes-35", "36": "kubernetes-36", "37": "kubernetes-37"},
    "kubernetes.aio": {"37": "kubernetes-37"},
    "kubernetes_asyncio": {"35": "kubernetes_asyncio-35", "36": "kubernetes-36"},
    "lightkube": {"1.37": "lightkube-1.37"},
}
"""For each library: its releases that have a table, and the table's file. The models of
kubernetes.aio are those of kubernetes, and so are those of kubernetes_asyncio 36; its 35 has
pod_cidrs where kubernetes has pod_cid_rs. A test compares them."""

BUILTIN_GROUPS = {
    "": "core",
    "admissionregistration.k8s.io": "admissionregistration",
    "apiextensions.k8s.io": "apiextensions",
    "apiregistration.k8s.io": "apiregistration",
    "apps": "apps",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "certificates.k8s.io": "certificates",
    "coordination.k8s.io": "coordination",
    "discovery.k8s.io": "discovery",
    "events.k8s.io": "events",
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
    "internal.apiserver.k8s.io": "apiserverinternal",
    "lifecycle.k8s.io": "lifecycle",
    "networking.k8s.io": "networking",
    "node.k8s.io": "node",
    "policy": "policy",
    "rbac.authorization.k8s.io": "rbac",
    "resource.k8s.io": "resource",
    "scheduling.k8s.io": "scheduling",
    "storage.k8s.io": "storage",
    "storagemigration.k8s.io": "storagemigration",
}
"""The groups whose kinds the clients have models of, with their prefix in names of models. A custom
resource may have the kind and the version of a built-in one: `Service` of Knative."""

_PACKAGES = {"kubernetes.aio": "kubernetes", "lightkube": "lightkube-models"}


class ModelTable:
    """The classes of one release of a library: their attributes, as lines of text."""

    def __init__(self, library: str, release: str) -> None:
        name = LIBRARIES[library][release]
        path = os.path.join(os.path.dirname(__file__), f"{name}.txt")
        with open(path, encoding="utf-8") as file:
            head = file.readline()
            self.lines = {line.partition(" ")[0]: line for line in file}
        self.by_key = head.rstrip().endswith("names=keys")

    def __contains__(self, name: object) -> bool:
        return name in self.lines

    def entries(self, name: str) -> list[tuple[str, str, str]]:
        """(attribute, key in JSON, kind) of a class, in the library's order."""
        from shmcache.models.naming import snake

        found = []
        for entry in self.lines[name].split()[1:]:
            members, _, kind = entry.partition(":")
            attribute, equals, key = members.partition("=")
            if not equals:
                key, attribute = attribute, attribute if self.by_key else snake(attribute)
            found.append((attribute, key, kind))
        return found


def release_of(library: str, version: str | None) -> str:
    """The release whose table counts for this version of a library; None: for the installed one.

    A newer version has the newest table, an older one the oldest: libraries add attributes, and
    hardly ever take one away.
    """
    releases = list(LIBRARIES[library])
    version = version or _installed(library)
    if version is None:
        return releases[-1]
    wanted = _numbers(version)
    below = [release for release in releases if _numbers(release) <= wanted]
    return below[-1] if below else releases[0]


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit())


def _installed(library: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(_PACKAGES.get(library, library))
    except metadata.PackageNotFoundError:
        return None


def check_library(library: object) -> None:
    """ValueError for a library without tables."""
    if library not in LIBRARIES:
        raise ValueError(f"no models of {library!r}: {', '.join(LIBRARIES)}, or a class of yours")


def model_name(
    names: ModelTable | object, api_version: str, kind: str, *, library: str
) -> str | None:
    """The name of a kind's model, or None. `names`: a container of all names.

    V1Pod, V1Deployment; CoreV1Event of v1 and EventsV1Event of events.k8s.io/v1; core_v1.Pod.
    """
    group, _, version = api_version.rpartition("/")
    prefix = BUILTIN_GROUPS.get(group)
    if prefix is None:
        return None
    if library == "lightkube":
        candidates = [f"{prefix}_{version}.{kind}"]
    else:
        version = version.capitalize()
        candidates = [f"{prefix.capitalize()}{version}{kind}", f"{version}{kind}"]
    for name in candidates:
        if name in names:  # type: ignore[operator]
            return name
    return None
