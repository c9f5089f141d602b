"""Views and models as answers of Litestar: the core's own bytes, wherever they are in the result.

    from shmcache.integrations.litestar import TYPE_ENCODERS

    app = Litestar([pods], type_encoders=TYPE_ENCODERS)

Litestar finds an encoder by `__class__`, which is dict for a View, and the library's class for a
model where the program has imported that library. It asks only about what msgspec cannot encode:
never about real dicts, lists and Structs. A model whose library's class has none of these bases
(`kubernetes` 36 or older, a lightkube of dataclasses) is returned as `raw(pod)`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shmcache.models.plain import VIEWS, raw

__all__ = ["TYPE_ENCODERS", "raw"]


def _pydantic(value: Any) -> Any:
    """Models of kubernetes 37 are classes of pydantic; any other object as Litestar has it."""
    return raw(value) if type(value) in VIEWS else value.model_dump(mode="json")


TYPE_ENCODERS: dict[Any, Any] = dict.fromkeys((*VIEWS, dict, list, msgspec.Struct), raw)
try:
    from pydantic import BaseModel
except ImportError:
    pass
else:
    TYPE_ENCODERS[BaseModel] = _pydantic
