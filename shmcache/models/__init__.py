"""Objects of the cache as objects that programs know: models of the official clients, or classes.

pods = cache["pods"].models()                     # as kubernetes.client has them
pods["prod/web-0"].spec.node_name                 # read from shared memory, nothing is decoded
cache["pods"].models("lightkube")["prod/web-0"].spec.nodeName
cache["widgets"].models(Widget)                   # a dataclass, attrs, msgspec or pydantic class

shmcache.attach("demo", models="kubernetes")      # every resource like that
"""

from __future__ import annotations

from shmcache._hot import Model, ModelList, ModelMap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Model", "ModelList", "ModelMap", "model"]


def model(
    view: Any, of: Any = None, *, version: str | None = None, validate: str = "lazily"
) -> Any:
    """One view as a model: see CachedResource.models()."""
    from shmcache.models.lister import wrapping

    return wrapping(of, version, validate).wrap(view)
