"""Objects of the cache as the models of the official clients, for code that wants those.

    pod = shmcache.interop.to_model(cache["pods"]["prod/web-0"])     # a kubernetes.client.V1Pod
    pod.spec.node_name

A model is a copy, made by the client's own decoder: it lives for ever, and costs what decoding
costs the client (about 100 µs a pod, and half a second for the first import, which is made when the
first model is). `view.to_dict()` gives plain dicts, without a package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENTS = ("kubernetes", "kubernetes_asyncio")

_FIRST = ("{group}{version}{kind}", "{version}{kind}")
"""How the clients name a model: by its group only where versions of several have the kind."""
_decoders: dict[str, Any] = {}


def to_model(obj: Mapping[str, Any], *, client: str = "kubernetes") -> Any:
    """The model of a view or dict that has `apiVersion` and `kind`, as this client has it.

    `client` is "kubernetes" or "kubernetes_asyncio". LookupError for kinds that it does not know,
    as custom resources; ValueError for objects that the client refuses. Fields that the model does
    not have are not in it.
    """
    decoder = _decoders.get(client) or _decoder(client)
    found: Any = decoder.decode(_plain(obj), _name(decoder.models, obj))
    return found


def _plain(obj: Any) -> dict[str, Any]:
    to_dict = getattr(obj, "to_dict", None)
    found: dict[str, Any] = to_dict() if callable(to_dict) else obj
    return found


def _name(models: Any, obj: Mapping[str, Any]) -> str:
    """V1Pod, V1Deployment; CoreV1Event of v1 and EventsV1Event of events.k8s.io/v1."""
    group, _, version = obj["apiVersion"].rpartition("/")
    words = {
        "group": (group.partition(".")[0] or "core").capitalize(),
        "version": version.capitalize(),
        "kind": obj["kind"],
    }
    for pattern in _FIRST:
        name = pattern.format(**words)
        if hasattr(models, name):
            return name
    raise LookupError(
        f"{models.__name__} has no model of {obj['kind']} in {obj['apiVersion']}: "
        "to_dict() gives plain dicts"
    )


class _Decoder:
    """The client's own decoder of answers, without a connection."""

    def __init__(self, client: str) -> None:
        package = importlib.import_module(f"{client}.client")
        self.models = importlib.import_module(f"{client}.client.models")
        api = package.ApiClient.__new__(package.ApiClient)  # its __init__ prepares connections
        api.configuration = package.Configuration()
        api.configuration.client_side_validation = False  # what a server said is taken as it is
        self.decode = api._ApiClient__deserialize  # noqa: SLF001 - its public one wants JSON text


def _decoder(client: str) -> _Decoder:
    if client not in CLIENTS:
        raise ValueError(f"client={client!r}: {' or '.join(CLIENTS)}")
    found = _decoders[client] = _Decoder(client)
    return found
