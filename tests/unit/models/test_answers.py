"""Invariant tested: applications answer with the core's own bytes; OpenAPI describes views."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pydantic
import pytest
from fastapi import FastAPI, Response

import shmcache
from shmcache import View
from shmcache.integrations.fastapi import ViewResponse, ViewRoute
from shmcache.models import Model, ModelList

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "prod"},
    "spec": {"containers": [{"name": "app", "image": "a"}, {"name": "log", "image": "l"}]},
}


class Answer(pydantic.BaseModel):
    pod: View
    containers: shmcache.ListView
    model: Model
    listed: ModelList
    all: list[View]


async def _asked(app: Any, path: str) -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
        "scheme": "http", "server": ("x", 80), "client": ("y", 1), "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:])


def ask(app: Any, path: str) -> tuple[int, dict[str, str], bytes]:
    return asyncio.run(_asked(app, path))


@pytest.fixture(params=[True, False], ids=["ViewRoute", "bare"])
def app(request: Any, writer: shmcache.Writer, cache: shmcache.Cache) -> Any:
    writer.apply("pods", [POD])
    pods, made = cache["pods"], FastAPI()
    if request.param:
        made.router.route_class = ViewRoute

    @made.get("/one")
    async def one() -> View:
        return pods["prod/web-0"]

    @made.get("/untyped")
    async def untyped():  # type: ignore[no-untyped-def]  # noqa: ANN202 - as people write it
        return pods["prod/web-0"]

    @made.get("/blocking", status_code=203)
    def blocking(response: Response) -> list[View]:
        response.headers["x-mine"] = "yes"
        return pods.list("prod")

    @made.get("/pairs")
    async def pairs():  # type: ignore[no-untyped-def]  # noqa: ANN202
        return pods["prod/web-0"]["spec"]["containers"]

    @made.get("/inside")
    async def inside():  # type: ignore[no-untyped-def]  # noqa: ANN202
        return {"pods": pods.list(), "count": len(pods)}

    @made.get("/answer")
    async def answer() -> Answer:
        pod = pods["prod/web-0"]
        model = pods.models()["prod/web-0"]
        containers = pod["spec"]["containers"]
        return Answer(
            pod=pod, containers=containers, model=model, listed=model.spec.containers, all=[pod]
        )

    return made


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/one", POD),
        ("/untyped", POD),
        ("/blocking", [POD]),
        ("/pairs", POD["spec"]["containers"]),
        ("/inside", {"pods": [POD], "count": 1}),
        (
            "/answer",
            {
                "pod": POD,
                "containers": POD["spec"]["containers"],
                "model": POD,
                "listed": POD["spec"]["containers"],
                "all": [POD],
            },
        ),
    ],
)
def test_fastapi_answers_with_the_objects_json(app: Any, path: str, expected: Any) -> None:
    status, headers, body = ask(app, path)

    assert json.loads(body) == expected
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(body))
    assert status == (203 if path == "/blocking" else 200)
    assert path != "/blocking" or headers["x-mine"] == "yes"


def test_a_view_of_a_route_is_the_cores_own_bytes(cache: shmcache.Cache, app: Any) -> None:
    view = cache["pods"]["prod/web-0"]

    assert ViewResponse(view).body == view.json()
    if app.router.route_class is ViewRoute:
        assert ask(app, "/one")[2] == view.json()


def test_openapi_describes_views_as_objects_and_arrays(app: Any) -> None:
    schema = app.openapi()
    members = schema["components"]["schemas"]["Answer"]["properties"]
    answer = schema["paths"]["/one"]["get"]["responses"]["200"]["content"]["application/json"]

    assert answer["schema"]["type"] == "object"
    assert {key: one["type"] for key, one in members.items()} == {
        "pod": "object",
        "containers": "array",
        "model": "object",
        "listed": "array",
        "all": "array",
    }


def test_pydantic_checks_the_type_of_a_view_and_keeps_it(roundtrip: Any) -> None:
    view = roundtrip(POD)
    adapter = pydantic.TypeAdapter(View)

    assert adapter.validate_python(view) is view
    assert type(adapter.dump_python(view)) is dict
    with pytest.raises(pydantic.ValidationError):
        adapter.validate_python(5)
