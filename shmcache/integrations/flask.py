"""Views and models as answers of Flask and Quart.

    from shmcache.integrations.flask import ViewProvider

    app.json = ViewProvider(app)

    @app.get("/pods/<namespace>/<name>")
    def pod(namespace, name):
        return cache["pods"][f"{namespace}/{name}"]

`return view` and `jsonify(view)` then send the core's own bytes, and views inside of other values
are encoded as what they are. Without the provider Flask refuses views with TypeError.
"""

from __future__ import annotations

from typing import Any

from flask.json.provider import DefaultJSONProvider

from shmcache.models.plain import VIEWS, json_bytes, plain


def _default(value: Any) -> Any:
    return plain(value) if type(value) in VIEWS else DefaultJSONProvider.default(value)


class ViewProvider(DefaultJSONProvider):
    """Flask's own provider, which knows views."""

    default = staticmethod(_default)

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """As DefaultJSONProvider's; a view as the core writes it, unless it is to be laid out."""
        if type(obj) in VIEWS and not kwargs.get("indent"):
            return json_bytes(obj).decode()
        text: str = super().dumps(obj, **kwargs)
        return text

    def response(self, *args: Any, **kwargs: Any) -> Any:
        """jsonify(): a view or a list of views without a dict between."""
        from shmcache.models.plain import is_views

        if len(args) == 1 and not kwargs and is_views(args[0]):
            return self._app.response_class(json_bytes(args[0]) + b"\n", mimetype=self.mimetype)
        return super().response(*args, **kwargs)
