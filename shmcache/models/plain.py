"""Views and models as what every encoder knows: plain dicts and lists, or their JSON.

A view behaves as a dict or a list for programs that read it, but is neither. An encoder that looks
at behaviour may take it for something else: FastAPI's takes a list of objects with two members for
pairs, and answers with wrong data. So what goes to an encoder goes through here, or through the
integration of the framework.
"""

from __future__ import annotations

from shmcache import _hot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VIEWS = (_hot.View, _hot.ListView, _hot.Model, _hot.ModelList, _hot.ModelMap)
_MODELS = (_hot.Model, _hot.ModelList, _hot.ModelMap)


def view_of(value: Any) -> Any:
    """The View or ListView behind a model; a view itself."""
    return value.to_view() if type(value) in _MODELS else value


def plain(value: Any) -> Any:
    """The JSON of a view or model as plain dicts and lists; any other value as it is."""
    found = view_of(value)
    if type(found) is _hot.View:
        return found.to_dict()
    return found.to_list() if type(found) is _hot.ListView else value


def default(value: Any) -> Any:
    """For encoders that ask about what they do not know: json, orjson, msgspec, structlog.

    json.dumps(obj, default=default), orjson.dumps(obj, default), msgspec's enc_hook.
    """
    if type(value) in VIEWS:
        return plain(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def is_views(value: Any) -> bool:
    """Whether it is a view, or a list or tuple of nothing but views."""
    if type(value) in VIEWS:
        return True
    return type(value) in {list, tuple} and bool(value) and all(type(one) in VIEWS for one in value)


def json_bytes(value: Any) -> bytes:
    """The JSON of a view, a model, or a list of these: the core's own bytes, no dict between."""
    if type(value) in VIEWS:
        text: bytes = view_of(value).json()
        return text
    from io import BytesIO

    found = BytesIO()  # one text at a time: a join needs the memory twice, and its page faults
    between = b"["
    for one in value:
        found.write(between)
        found.write(view_of(one).json())
        between = b","
    found.write(b"]" if between == b"," else b"[]")
    return found.getvalue()  # no copy


def raw(value: Any) -> Any:
    """Msgspec's enc_hook: the core's own bytes, in the middle of what msgspec encodes."""
    import msgspec

    if type(value) not in VIEWS:
        raise NotImplementedError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return msgspec.Raw(json_bytes(value))


def fragment(value: Any) -> Any:
    """Orjson's default: the core's own bytes, in the middle of what orjson encodes."""
    import orjson

    if type(value) not in VIEWS:
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return orjson.Fragment(json_bytes(value))


def dumps(value: Any) -> bytes:
    """The JSON of a value with views and models in it. Views are the core's own bytes.

    With orjson also those inside of other values; without it these go through dicts.
    """
    if is_views(value):
        return json_bytes(value)
    try:
        import orjson
    except ImportError:
        import json

        return json.dumps(value, default=default, separators=(",", ":")).encode()
    return orjson.dumps(value, fragment)
