"""Objects of the cache as the clients' own models: copies, made by the clients' own decoders.

    pod = shmcache.interop.to_model(cache["pods"]["prod/web-0"])     # a kubernetes.client.V1Pod
    pod.spec.node_name

A model lives for ever and can be changed, and costs what decoding costs the client (about 450 µs a
pod, and a tenth of a second for the first import). For attributes without a copy there are model
views: `cache["pods"].models()`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shmcache.models.tables import LIBRARIES, check_library, model_name

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENTS = tuple(LIBRARIES)


def to_model(obj: Mapping[str, Any], *, client: str = "kubernetes") -> Any:
    """The model of a view or dict that has `apiVersion` and `kind`, as this client has it.

    `client` is "kubernetes", "kubernetes.aio", "kubernetes_asyncio" or "lightkube". LookupError for
    kinds that it does not know, as custom resources; ValueError for objects that the client
    refuses. Fields that the model does not have are not in it.
    """
    check_library(client)
    found = decoder(client)
    return found.decode(_plain(obj), _name(found, obj))


def _plain(obj: Any) -> dict[str, Any]:
    to_dict = getattr(obj, "to_dict", None)
    found: dict[str, Any] = to_dict() if callable(to_dict) else obj
    return found


def _name(found: ModelDecoder, obj: Mapping[str, Any]) -> str:
    name = model_name(found, obj["apiVersion"], obj["kind"], library=found.library)
    if name is None:
        raise LookupError(
            f"{found.library} has no model of {obj['kind']} in {obj['apiVersion']}: "
            "to_dict() gives plain dicts"
        )
    return name


class ModelDecoder:
    """A client's own decoder of answers, without a connection."""

    def __init__(self, library: str) -> None:
        self.library = library
        self._decode = _structs() if library == "lightkube" else self._openapi()

    def _openapi(self) -> Any:
        package = importlib.import_module(f"{self.library}.client")
        self.models = importlib.import_module(f"{self.library}.client.models")
        api = package.ApiClient.__new__(package.ApiClient)  # its __init__ prepares connections
        api.configuration = package.Configuration()
        api.configuration.client_side_validation = False  # objects of a server are valid
        return api._ApiClient__deserialize  # noqa: SLF001 - its public one wants JSON text

    def __contains__(self, name: object) -> bool:
        if self.library != "lightkube":
            return hasattr(self.models, str(name))
        try:
            _struct(str(name))
        except (ImportError, AttributeError):
            return False
        return True

    def decode(self, plain: dict[str, Any], name: str) -> Any:
        """The model of this name. ValueError, or the client's own error, if it refuses."""
        return self._decode(plain, name)


def _struct(name: str) -> Any:
    """The resource of that name if it is one, else the model."""
    module, _, kind = name.partition(".")
    try:
        return getattr(importlib.import_module(f"lightkube.resources.{module}"), kind)
    except (ImportError, AttributeError):
        return getattr(importlib.import_module(f"lightkube.models.{module}"), kind)


def _structs() -> Any:
    importlib.import_module("lightkube")
    return lambda plain, name: _struct(name).from_dict(plain)


_decoders: dict[str, ModelDecoder] = {}


def decoder(library: str) -> ModelDecoder:
    """The decoder of a library. ImportError, with the line that installs it, if it is not here."""
    found = _decoders.get(library)
    if found is None:
        try:
            found = _decoders[library] = ModelDecoder(library)
        except ImportError as error:
            package = library.partition(".")[0]
            raise ImportError(
                f"{library}'s own models need the package: pip install {package} ({error}); "
                "to_view() and to_dict() do without"
            ) from error
    return found
