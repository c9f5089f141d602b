"""Invariant tested: no encoder that people use makes wrong data of a view.

Each kind of view × each encoder × alone, in a list, in a dict: the right JSON, or an exception that
is a refusal. The worst case is an array of objects with two members, which an encoder that
guesses takes for pairs (FastAPI did, with status 200).
"""

from __future__ import annotations

import dataclasses
import decimal
import io
import json
from collections.abc import Callable
from typing import Any

import lightkube.models.core_v1  # noqa: F401 - its models then have the classes of these
import pytest

import shmcache
from shmcache.models import model
from shmcache.models.plain import default, dumps, fragment, plain, raw

OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "prod", "labels": {"app": "web", "of": "two"}},
    "spec": {"containers": [{"name": "app", "image": "a:1"}, {"name": "log", "image": "l:1"}]},
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "View": lambda view: view,
    "View of two members": lambda view: view["metadata"]["labels"],
    "ListView of pairs": lambda view: view["spec"]["containers"],
    "Model": model,
    "Model of a custom resource": lambda view: (
        model(view)._model_class().dialect.custom.class_named("X").wrap(view)
    ),
    "Model of lightkube": lambda view: model(view, "lightkube"),
    "Model inside": lambda view: model(view).metadata,
    "ModelList of pairs": lambda view: model(view).spec.containers,
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "alone": lambda one: one,
    "in a list": lambda one: [one, one],
    "in a dict": lambda one: {"a": one, "b": [one]},
}


def _refusing(encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """None for a refusal; a result counts as JSON."""

    def encoded(value: Any) -> Any:
        try:
            return encode(value)
        except (TypeError, ValueError, NotImplementedError):
            return None

    return encoded


def _jsonable(value: Any) -> Any:
    from fastapi.encoders import jsonable_encoder

    return json.dumps(jsonable_encoder(value))


def _rest(value: Any) -> Any:
    from rest_framework.utils.encoders import JSONEncoder

    return json.dumps(value, cls=JSONEncoder)


def _django(value: Any) -> Any:
    from django.core.serializers.json import DjangoJSONEncoder

    return json.dumps(value, cls=DjangoJSONEncoder)


def _view_django(value: Any) -> Any:
    from shmcache.integrations.django import ViewEncoder

    return json.dumps(value, cls=ViewEncoder)


def _rendered(value: Any) -> Any:
    from shmcache.integrations.django import ViewRenderer

    return ViewRenderer().render(value)


def _flask(value: Any) -> Any:
    import flask

    return flask.Flask("test").json.dumps(value)


def _view_flask(value: Any) -> Any:
    import flask

    from shmcache.integrations.flask import ViewProvider

    app = flask.Flask("test")
    app.json = ViewProvider(app)
    with app.app_context():
        assert json.loads(app.json.response(value).data) == json.loads(app.json.dumps(value))
    return app.json.dumps(value)


def _orjson(value: Any) -> Any:
    import orjson

    return orjson.dumps(value)


def _view_orjson(value: Any) -> Any:
    import orjson

    assert orjson.dumps(value, default=default) == orjson.dumps(value, fragment)
    return orjson.dumps(value, fragment)


def _msgspec(value: Any) -> Any:
    import msgspec

    return msgspec.json.encode(value)


def _view_msgspec(value: Any) -> Any:
    import msgspec

    return msgspec.json.encode(value, enc_hook=raw)


def _litestar(value: Any) -> Any:
    from litestar.serialization import encode_json, get_serializer

    from shmcache.integrations.litestar import TYPE_ENCODERS

    return encode_json(value, get_serializer(TYPE_ENCODERS))


def _bare_litestar(value: Any) -> Any:
    from litestar.exceptions import SerializationException
    from litestar.serialization import encode_json

    try:
        return encode_json(value)
    except SerializationException as error:
        raise TypeError(str(error)) from error


def _pydantic(value: Any) -> Any:
    import pydantic_core

    return pydantic_core.to_json(value)


def _pydantic_any(value: Any) -> Any:
    import pydantic

    class Answer(pydantic.BaseModel):
        inside: Any

    found: Any = json.loads(Answer(inside=value).model_dump_json())["inside"]
    return json.dumps(found)


def _structlog(value: Any) -> Any:
    import structlog

    found = structlog.processors.JSONRenderer()(None, "info", {"value": value})
    return json.dumps(json.loads(found)["value"])


def _starlette(value: Any) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(value).body


def _view_response(value: Any) -> Any:
    from shmcache.integrations.fastapi import ViewResponse

    return ViewResponse(value).body


def _aiohttp(value: Any) -> Any:
    from shmcache.integrations.aiohttp import dumps_text, view_response

    assert view_response(value).body == dumps_text(value).encode()
    return view_response(value).body


def _dataclass(value: Any) -> Any:
    @dataclasses.dataclass
    class Answer:
        inside: Any

    return json.dumps(dataclasses.asdict(Answer(value))["inside"], default=default)


def _pickled(value: Any) -> Any:
    """Another process may encode what it unpickles."""
    import pickle

    return json.dumps(plain_deep(pickle.loads(pickle.dumps(plain_views(value)))))


def plain_views(value: Any) -> Any:
    """Models become objects of a library when they are pickled: here views do."""
    if isinstance(value, list) and type(value) is list:
        return [plain_views(one) for one in value]
    if type(value) is dict:
        return {key: plain_views(one) for key, one in value.items()}
    return value.to_view() if hasattr(value, "to_view") else value


def plain_deep(value: Any) -> Any:
    assert type(value) in {dict, list}
    return value


def _iterencoded(value: Any) -> Any:
    """The encoder in Python, which looks at classes."""
    file = io.StringIO()
    json.dump(value, file, indent=1)
    return file.getvalue()


ENCODERS: dict[str, tuple[Callable[[Any], Any], bool]] = {  # the second: must encode, not refuse
    "json": (_refusing(json.dumps), False),
    "json in Python": (_refusing(_iterencoded), False),
    "json with default": (lambda value: json.dumps(value, default=default), True),
    "json with shmcache.default": (lambda value: json.dumps(value, default=shmcache.default), True),
    "dumps": (dumps, True),
    "orjson": (_refusing(_orjson), False),
    "orjson with fragments": (_view_orjson, True),
    "msgspec": (_refusing(_msgspec), False),
    "msgspec with raw": (_view_msgspec, True),
    "pydantic": (_pydantic, True),
    "pydantic field": (_pydantic_any, True),
    "FastAPI": (_refusing(_jsonable), False),
    "Starlette": (_refusing(_starlette), False),
    "ViewResponse": (_view_response, True),
    "Flask": (_refusing(_flask), False),
    "Flask with ViewProvider": (_view_flask, True),
    "Django": (_refusing(_django), False),
    "Django with ViewEncoder": (_view_django, True),
    "REST framework": (_refusing(_rest), False),
    "REST framework with ViewRenderer": (_rendered, True),
    "Litestar": (_refusing(_bare_litestar), False),
    "Litestar with TYPE_ENCODERS": (_litestar, True),
    "aiohttp": (_aiohttp, True),
    "structlog": (_structlog, True),
    "dataclasses.asdict": (_refusing(_dataclass), False),
    "pickle": (_pickled, True),
}


@pytest.fixture(scope="module", autouse=True)
def _settings() -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure()


@pytest.fixture
def view(writer: shmcache.Writer, cache: shmcache.Cache) -> Any:
    writer.apply("pods", [OBJECT])
    return cache["pods"]["prod/web-0"]


def _normal(value: Any) -> Any:
    """Without the None that the clients' own copies have for absent members."""
    if isinstance(value, dict):
        return {key: _normal(one) for key, one in value.items() if one is not None}
    return [_normal(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_gives_the_objects_json_or_refuses(
    kind: str, encoder: str, place: str, view: Any
) -> None:
    encode, must = ENCODERS[encoder]
    one = KINDS[kind](view)
    expected = PLACES[place](plain(one))
    text = encode(PLACES[place](one))

    assert text is not None or not must
    if text is not None:
        assert _normal(json.loads(text)) == expected


def test_values_that_are_no_views_are_left_to_the_encoder() -> None:
    with pytest.raises(TypeError, match="Object of type Decimal is not JSON serializable"):
        default(decimal.Decimal(1))
    with pytest.raises(TypeError, match="Decimal"):
        fragment(decimal.Decimal(1))
    with pytest.raises(NotImplementedError, match="Decimal"):
        raw(decimal.Decimal(1))
    assert plain(5) == 5
