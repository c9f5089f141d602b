"""Columns of the groups networking.k8s.io and discovery.k8s.io."""

from __future__ import annotations

from shmcache.protocol.tables.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    at,
    default_name,
    joined,
    more,
    named,
    selector,
    text,
)
from shmcache.protocol.tables.core import addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = Any

_SHOWN = 3


def _hosts(obj: Object) -> str:
    """The hosts of the first rules; all rules after them count as left out."""
    rules = at(obj, "spec.rules") or ()
    found: list[str] = []
    for rule in rules:
        if len(found) == _SHOWN:
            return f"{','.join(found)} + {len(rules) - _SHOWN} more..."
        if rule.get("host"):
            found.append(rule["host"])
    return ",".join(found) or "*"


def _parameters(obj: Object) -> str:
    found = at(obj, "spec.parameters")
    if found is None:
        return NONE
    group = found.get("apiGroup")
    kind = str(found.get("kind", "")) + ("" if group is None else f".{group}")
    return f"{kind}/{found.get('name', '')}"


def _parent(obj: Object) -> str:
    found = at(obj, "spec.parentRef")
    if found is None:
        return NONE
    group, namespace = found.get("group"), found.get("namespace")
    resource = f"{found.get('resource', '')}.{group}" if group else str(found.get("resource", ""))
    prefix = f"{namespace}/" if namespace else ""
    return f"{resource.lower()}/{prefix}{found.get('name', '')}"


def _slice_ports(obj: Object) -> str:
    ports = obj.get("ports") or ()
    found = [str(one.get("port") or one.get("name") or "*") for one in ports]
    return more(found, _SHOWN, len(found), "<unset>")


def _slice_endpoints(obj: Object) -> str:
    found = [ip for one in obj.get("endpoints") or () for ip in one.get("addresses") or ()]
    return more(found, _SHOWN, len(found), "<unset>")


COLUMNS: dict[str, list[Column]] = {
    "ingressclasses.networking.k8s.io": [
        named(default_name("ingressclass.kubernetes.io/is-default-class")),
        Column("Controller", text("spec.controller", "")),
        Column("Parameters", _parameters),
        AGE,
    ],
    "ingresses.networking.k8s.io": [
        NAME,
        Column("Class", text("spec.ingressClassName")),
        Column("Hosts", _hosts),
        Column("Address", lambda obj: ",".join(addresses(at(obj, "status.loadBalancer.ingress")))),
        Column("Ports", lambda obj: "80, 443" if at(obj, "spec.tls") else "80"),
        AGE,
    ],
    "ipaddresses.networking.k8s.io": [NAME, Column("ParentRef", _parent)],
    "networkpolicies.networking.k8s.io": [
        NAME,
        Column("Pod-Selector", selector("spec.podSelector")),
        AGE,
    ],
    "servicecidrs.networking.k8s.io": [NAME, Column("CIDRs", joined("spec.cidrs", "")), AGE],
    "endpointslices.discovery.k8s.io": [
        NAME,
        Column("AddressType", text("addressType", "")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_endpoints),
        AGE,
    ],
}
