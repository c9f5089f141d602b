"""Views and models as answers of aiohttp.

from shmcache.integrations.aiohttp import view_response

return view_response(cache["pods"]["prod/web-0"])            # the core's own bytes
return web.json_response({"pods": pods}, dumps=dumps_text)   # views inside of other values
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from shmcache.models.plain import dumps


def view_response(data: Any, **kwargs: Any) -> web.Response:
    """A response of a view, a model, a list of these, or of values with these inside."""
    kwargs.setdefault("content_type", "application/json")
    return web.Response(body=dumps(data), **kwargs)


def dumps_text(data: Any) -> str:
    """For json_response(dumps=)."""
    return dumps(data).decode()
