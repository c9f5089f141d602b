"""What do objects cost that read as the official models, as answers of FastAPI, as columns?

A model view reads shared memory; the peer is the official client's model, decoded beforehand: its
decode is a row of its own. FastAPI's answers are made by calling the application itself, without a
socket: the peer returns the dicts that it keeps. Two rows show the ceiling: the same application
that answers with constant bytes of the same size, and a plain route of it. Frames go into polars
both ways; the peer makes lists of six fields from dicts that it keeps.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from benchmarks import harness
from benchmarks.harness import Row, at_least, at_most, ratio_of, show_ns
from benchmarks.scenes.shared import Corpus, SharedStore, filled
from shmcache.models import decoding
from shmcache.models.plain import dumps

VIEWS, DECODES, ANSWERS, FRAMES = 2_000, 300, 100, 3
MANY = 1_000
COLUMNS = {
    "namespace": "metadata.namespace",
    "name": "metadata.name",
    "node": "spec.nodeName",
    "phase": "status.phase",
    "ip": "status.podIP",
    "account": "spec.serviceAccountName",
}


def run(quick: bool) -> list[Row]:
    rounds = 2 if quick else 9
    with filled(Corpus("pods", 10_000)) as name:
        store = SharedStore(name)
        bodies = Corpus("pods", 10_000).bodies()
        keys = list(bodies)
        random.Random(7).shuffle(keys)
        try:
            rows = [
                *_attributes(store, bodies, keys, rounds),
                *_answers(store, bodies, keys, rounds),
            ]
        finally:
            store.close()
    size = 10_000 if quick else 100_000
    with filled(Corpus("pods", size)) as name:
        store = SharedStore(name)
        try:
            rows.append(_frame(store, Corpus("pods", size), 2 if quick else 5))
        finally:
            store.close()
    return rows


def decoded(text: bytes) -> Any:
    """The official client's model."""
    return decoding.to_model({"apiVersion": "v1", "kind": "Pod"} | orjson.loads(text))


# ---- models --------------------------------------------------------------------------------------


def _node(models: Sequence[Any]) -> None:
    for model in models:
        model.spec.node_name  # noqa: B018


def _name(models: Sequence[Any]) -> None:
    for model in models:
        model.spec.containers[0].name  # noqa: B018


def _attributes(
    store: SharedStore, bodies: dict[str, bytes], keys: list[str], rounds: int
) -> list[Row]:
    some = keys[:VIEWS]
    pods = store.pods.models()
    ours = [pods[key] for key in some]
    texts = [bodies[key] for key in some]
    theirs = [decoded(text) for text in texts]
    rows = []
    for path, loop in (("spec.node_name", _node), ("spec.containers[0].name", _name)):
        times = harness.measure(
            {"ours": (loop, lambda: ours), "peer": (loop, lambda: theirs)}, VIEWS, rounds
        )
        rows.append(
            Row(
                question=f"model view, {path}",
                ours=str(times["ours"]),
                peer=f"{type(theirs[0]).__module__.partition('.')[0]}'s model, decoded "
                f"{times['peer']}",
                **at_most(2, ratio_of(times["ours"], times["peer"])),
            )
        )
    loops: dict[str, Any] = {
        "ours": (lambda found: [pods[key] for key in found], lambda: some[:DECODES]),
        "peer": (
            lambda found: [decoded(text) for text in found],
            lambda: texts[:DECODES],
        ),
    }
    times = harness.measure(loops, DECODES, rounds)
    rows.append(
        Row(
            question="a model of a pod, from the cache or from its JSON",
            ours=show_ns(times["ours"].ns),
            peer=f"decode {show_ns(times['peer'].ns)}",
            ratio=ratio_of(times["peer"], times["ours"]),
        )
    )
    return rows


# ---- answers -------------------------------------------------------------------------------------


def application(find: Callable[[str], Any], some: Callable[[], Any], *, views: bool) -> Any:
    """A FastAPI application that answers with one object, or with many."""
    from fastapi import FastAPI

    app = FastAPI()
    if views:
        from shmcache.integrations.fastapi import ViewRoute

        app.router.route_class = ViewRoute

    @app.get("/one/{namespace}/{name}")
    async def one(namespace: str, name: str) -> Any:
        return find(f"{namespace}/{name}")

    @app.get("/many")
    async def many() -> Any:
        return some()

    return app


def constant(one_pod: bytes, many_pods: bytes) -> Any:
    """The application without an encoder: FastAPI's own work."""
    from fastapi import FastAPI
    from starlette.responses import Response

    app = FastAPI()

    @app.get("/one/{namespace}/{name}")
    async def one(namespace: str, name: str) -> Any:
        return Response(one_pod if namespace or name else b"", media_type="application/json")

    @app.get("/many")
    async def many() -> Any:
        return Response(many_pods, media_type="application/json")

    return app


def plain(find: Callable[[str], Any], some: Callable[[], Any]) -> Any:
    """A FastAPI application whose routes are Starlette's: no dependencies, no validation."""
    from fastapi import FastAPI
    from starlette.routing import Route

    from shmcache.integrations.fastapi import ViewResponse

    async def one(request: Any) -> Any:
        return ViewResponse(find("{namespace}/{name}".format(**request.path_params)))

    async def many(_: Any) -> Any:
        return ViewResponse(some())

    app = FastAPI()
    app.router.routes += [Route("/one/{namespace}/{name}", one), Route("/many", many)]
    return app


def caller(app: Any, loop: asyncio.AbstractEventLoop) -> Callable[[Sequence[str]], None]:
    """Sends requests to an application, one after the other, without a socket."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200

    async def ask(path: str) -> None:
        await app(
            {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "scheme": "http",
                "method": "GET",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "root_path": "",
                "headers": [],
                "server": ("x", 80),
                "client": ("x", 1),
            },
            receive,
            send,
        )

    def run(paths: Sequence[str]) -> None:
        for path in paths:
            loop.run_until_complete(ask(path))

    return run


def _answers(
    store: SharedStore, bodies: dict[str, bytes], keys: list[str], rounds: int
) -> list[Row]:
    kept = {key: orjson.loads(bodies[key]) for key in keys[:MANY]}
    loop = asyncio.new_event_loop()
    some = functools.partial(store.pods.scan, limit=MANY, want="values")
    ours = caller(application(store.pods.get, some, views=True), loop)
    theirs = caller(application(kept.get, lambda: list(kept.values()), views=False), loop)
    bare = caller(constant(dumps(store.pods.get(keys[0])), dumps(some())), loop)
    light = caller(plain(store.pods.get, some), loop)
    rows = []
    for question, paths, number, least in (
        ("FastAPI, an answer with one pod", [f"/one/{key}" for key in keys[:ANSWERS]], ANSWERS, 10),
        (f"FastAPI, an answer with {MANY:,} pods", ["/many"], 1, 20),
    ):
        sent: Callable[[], list[str]] = functools.partial(list, paths)
        loops = {"ours": ours, "peer": theirs, "bare": bare, "light": light}
        times = harness.measure({name: (run, sent) for name, run in loops.items()}, number, rounds)
        rows.append(
            Row(
                question=question,
                ours=show_ns(times["ours"].ns),
                peer=f"dicts {show_ns(times['peer'].ns)}",
                **at_least(least, ratio_of(times["peer"], times["ours"])),
            )
        )
        rows.append(
            Row(
                question="the ceiling: constant bytes of that size",
                ours=show_ns(times["bare"].ns),
                peer=f"dicts {show_ns(times['peer'].ns)}",
                ratio=ratio_of(times["peer"], times["bare"]),
            )
        )
        rows.append(
            Row(
                question="a plain route of the application, with ViewResponse",
                ours=show_ns(times["light"].ns),
                peer=f"dicts {show_ns(times['peer'].ns)}",
                ratio=ratio_of(times["peer"], times["light"]),
            )
        )
    loop.close()
    return rows


# ---- columns -------------------------------------------------------------------------------------


def _frame(store: SharedStore, corpus: Corpus, rounds: int) -> Row:
    import polars as pl

    dicts = [orjson.loads(body) for body in corpus.bodies().values()]

    def ours(_: object) -> None:
        pl.DataFrame(store.pods.frame(COLUMNS))

    def theirs(_: object) -> None:
        pl.DataFrame(
            {
                "namespace": [one["metadata"].get("namespace") for one in dicts],
                "name": [one["metadata"]["name"] for one in dicts],
                "node": [one["spec"].get("nodeName") for one in dicts],
                "phase": [one["status"].get("phase") for one in dicts],
                "ip": [one["status"].get("podIP") for one in dicts],
                "account": [one["spec"].get("serviceAccountName") for one in dicts],
            }
        )

    times = harness.measure(
        {"ours": (ours, lambda: None), "peer": (theirs, lambda: None)}, 1, rounds
    )
    return Row(
        question=f"frame of six columns, {corpus}, into polars",
        ours=show_ns(times["ours"].ns),
        peer=f"lists from kept dicts {show_ns(times['peer'].ns)}",
        **at_most(0.2, ratio_of(times["ours"], times["peer"])),
    )


if __name__ == "__main__":
    harness.main(__doc__, run)
