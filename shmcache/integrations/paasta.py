"""Yelp's PaaSTA: the look-ups of its KubeClient from the cache of the machine.

    from shmcache.integrations.paasta import adopt

    adopt("paasta")   # in gunicorn's configuration; shmcache run pods nodes deployments.apps ...

Each KubeClient made afterwards asks the cache first, in `core` and `deployments`: pods by service
and instance, by node, all pods, all nodes, deployments, replica sets. PaaSTA's own caches of five
minutes (`get_all_pods_cached`) and one minute (`get_all_nodes_cached`) are switched off: reads of
the cache take microseconds and are newer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from paasta_tools import kubernetes_tools
from paasta_tools.metrics import metastatus_lib

from shmcache.integrations.clients import CachedApi
from shmcache.integrations.reads import MAX_AGE

if TYPE_CHECKING:
    from collections.abc import Callable

_REPLACED = {
    "get_all_pods_cached": kubernetes_tools.get_all_pods,
    "get_all_nodes_cached": kubernetes_tools.get_all_nodes,
}
_APIS = ("core", "deployments")


def adopt(name: str | None = None, *, max_age: float = MAX_AGE) -> None:
    """Makes the cache of this name PaaSTA's first source in this process; once, before its use."""
    made = kubernetes_tools.KubeClient.__init__
    kubernetes_tools.KubeClient.__init__ = _adopted(made, name, max_age)
    for module in (kubernetes_tools, metastatus_lib):
        for function, fresh in _REPLACED.items():
            if hasattr(module, function):
                setattr(module, function, fresh)


def _adopted(made: Callable[..., None], name: str | None, max_age: float) -> Callable[..., None]:
    @functools.wraps(made)
    def init(client: Any, *args: Any, **kwargs: Any) -> None:
        made(client, *args, **kwargs)
        for api in _APIS:
            theirs = getattr(client, api)
            if not isinstance(theirs, CachedApi):  # PaaSTA makes one client, and inits it again
                setattr(client, api, CachedApi(theirs, name, max_age=max_age))

    return init
