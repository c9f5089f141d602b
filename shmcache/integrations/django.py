"""Views and models as answers of Django and Django REST framework.

from shmcache.integrations.django import ViewJsonResponse, ViewEncoder

return ViewJsonResponse(cache["pods"].list("prod"))          # the core's own bytes
return JsonResponse({"pods": pods}, encoder=ViewEncoder)     # views inside of other values

REST_FRAMEWORK = {"DEFAULT_RENDERER_CLASSES": ["shmcache.integrations.django.ViewRenderer"]}
"""

from __future__ import annotations

from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpResponse

from shmcache.models.plain import VIEWS, dumps, is_views, json_bytes, plain


class ViewEncoder(DjangoJSONEncoder):
    """Django's encoder, which knows views."""

    def default(self, o: Any) -> Any:
        """A view as plain dicts and lists."""
        return plain(o) if type(o) in VIEWS else super().default(o)


class ViewJsonResponse(HttpResponse):
    """A response of a view, a model, a list of these, or of values with these inside."""

    def __init__(self, data: Any, **kwargs: Any) -> None:
        kwargs.setdefault("content_type", "application/json")
        super().__init__(content=dumps(data), **kwargs)


def __getattr__(name: str) -> Any:
    """ViewRenderer, whose base is in Django REST framework."""
    if name != "ViewRenderer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rest_framework.renderers import JSONRenderer
    from rest_framework.utils.encoders import JSONEncoder

    class RestEncoder(JSONEncoder):
        """REST framework's encoder, which knows views."""

        def default(self, obj: Any) -> Any:
            return plain(obj) if type(obj) in VIEWS else super().default(obj)

    class ViewRenderer(JSONRenderer):
        """REST framework's renderer of JSON; views are the core's own bytes."""

        encoder_class = RestEncoder

        def render(
            self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None
        ) -> Any:
            """The text of a response's data."""
            context = renderer_context or {}
            if is_views(data) and not self.get_indent(accepted_media_type, context):
                return json_bytes(data)
            return super().render(data, accepted_media_type, renderer_context)

    globals()[name] = ViewRenderer
    return ViewRenderer
