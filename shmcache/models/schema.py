"""Views in pydantic: fields of models, types of answers in FastAPI, their OpenAPI schema.

A field that is annotated with View, ListView, Model, ModelList or ModelMap holds the view itself
and checks nothing but its type. It is written as its JSON. In model_dump() without mode="json" it
becomes plain dicts and lists. Where a field is Any or a union, pydantic finds the serializer by
itself.
"""

from __future__ import annotations

import functools

from shmcache import _hot
from shmcache.models.plain import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ARRAYS = (_hot.ListView, _hot.ModelList)


def core_schema(of: type, _source: Any = None, _handler: Any = None) -> Any:
    """Pydantic's __get_pydantic_core_schema__ of the five types."""
    from pydantic_core import core_schema as schema

    array = of in _ARRAYS
    shown = schema.list_schema() if array else schema.dict_schema()
    return schema.json_or_python_schema(
        json_schema=shown,
        python_schema=schema.is_instance_schema(of),
        serialization=schema.plain_serializer_function_ser_schema(plain, return_schema=shown),
    )


@functools.cache
def serializer(of: type) -> Any:
    """Pydantic's __pydantic_serializer__ of the five types."""
    from pydantic_core import SchemaSerializer

    return SchemaSerializer(core_schema(of))
