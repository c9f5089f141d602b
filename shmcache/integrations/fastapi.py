"""Views and models as answers of FastAPI and Starlette: the core's own bytes, no dict between.

    from shmcache.integrations.fastapi import ViewResponse, ViewRoute

    app = FastAPI(lifespan=lifespan("web"))
    app.router.route_class = ViewRoute                # a returned view is the answer

    @app.get("/pods/{namespace}/{name}")
    async def pod(namespace: str, name: str, request: Request) -> View:
        return request.state.cache["pods"][f"{namespace}/{name}"]

    Starlette: return ViewResponse(request.state.cache["pods"].list("prod"))

FastAPI alone answers with the same JSON, by way of dicts. Views inside of other values (a dict, a
pydantic model) go that way in any case.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from shmcache.models.plain import dumps, is_views

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    from fastapi.routing import APIRoute
except ImportError:  # Starlette alone
    APIRoute = object  # type: ignore[misc, assignment]


class ViewResponse(Response):
    """A response of a view, a model, a list of these, or of values with these inside."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The JSON text."""
        return dumps(content)


class ViewRoute(APIRoute):
    """A route of FastAPI that answers with a ViewResponse where its function returns views.

    Status, headers and cookies that the function set by a `Response` parameter are kept, and so is
    `status_code=` of the route. Any other result goes FastAPI's way.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _answering(endpoint, options.get("status_code")), **options)


def _answering(endpoint: Callable[..., Any], status: int | None) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(endpoint):

        @functools.wraps(endpoint)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return _answer(await endpoint(*args, **kwargs), status, kwargs)

        return awaited
    if inspect.isgeneratorfunction(endpoint) or inspect.isasyncgenfunction(endpoint):
        return endpoint  # streams, whose items FastAPI encodes

    @functools.wraps(endpoint)
    def called(*args: Any, **kwargs: Any) -> Any:
        return _answer(endpoint(*args, **kwargs), status, kwargs)

    return called


def _answer(result: Any, status: int | None, given: dict[str, Any]) -> Any:
    if not is_views(result):
        return result
    response = ViewResponse(result, status_code=status or 200)
    for value in given.values():
        if type(value) is Response:  # the one that FastAPI made for a `Response` parameter
            response.status_code = value.status_code or response.status_code
            response.raw_headers += [
                pair for pair in value.raw_headers if pair[0] != b"content-length"
            ]
    return response
