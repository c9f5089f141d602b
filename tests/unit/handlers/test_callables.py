"""Invariant tested: a function that a user hands over runs, or is refused where it is declared,
whatever form it has; none is called without an effect."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import shmcache
from shmcache.callables import check_callable, check_plain, is_coroutine_function
from shmcache.engine.plans import Plan, PlanError
from shmcache.queue.feeder import Feeder
from shmcache.settings import Resource


def plain(*_: Any) -> None: ...


async def coroutine(*_: Any) -> None: ...


def generator(*_: Any) -> Iterator[str]:
    yield ""


async def stream(*_: Any) -> AsyncIterator[str]:
    yield ""


def formed(function: Callable[..., Any]) -> dict[str, Any]:
    """The same function in all forms in which Python knows functions."""

    class Called:
        __call__ = staticmethod(function)

    class Method:
        def __init__(self) -> None:
            self.bound = functools.partial(function)

    class Slotted:
        __slots__ = ()

        def method(self, *_: Any) -> Any: ...

    Slotted.method = function  # type: ignore[method-assign]
    return {
        "function": function,
        "partial": functools.partial(function),
        "partial of a partial": functools.partial(functools.partial(function, 1), 2),
        "bound method": Slotted().method,
        "partial of a bound method": functools.partial(Slotted().method),
        "object": Called(),
        "partial of an object": functools.partial(Called()),
        "partial in an object": Method().bound,
        "decorated": functools.wraps(function)(functools.partial(function)),
    }


FORMS = pytest.mark.parametrize("form", list(formed(plain)))
KINDS = {"coroutine": coroutine, "generator": generator, "stream": stream}


@FORMS
def test_each_form_of_a_function_is_recognised(form: str) -> None:
    assert is_coroutine_function(formed(coroutine)[form])
    assert not is_coroutine_function(formed(plain)[form])
    check_callable(formed(plain)[form], "it")
    check_callable(formed(coroutine)[form], "it")
    check_plain(formed(plain)[form], "it")
    check_plain(formed(generator)[form], "it", iterated=True)
    for function in (generator, stream):
        with pytest.raises(TypeError, match="generator function"):
            check_callable(formed(function)[form], "it")
    for wrong in (coroutine, stream):
        with pytest.raises(TypeError):
            check_plain(formed(wrong)[form], "it", iterated=True)


def _controller(**given: Any) -> Callable[[Any, shmcache.Cache], object]:
    (name,) = given

    def declare(function: Any, _: shmcache.Cache) -> object:
        value = given[name](function)
        reconcile = value if name == "reconcile" else plain
        options = {} if name == "reconcile" else {name: value}
        return shmcache.controller("pods", **options)(reconcile)

    return declare


PLACES: dict[str, tuple[Callable[[Any, shmcache.Cache], object], set[str]]] = {
    # where a function is declared, and the kinds that run there
    "handler": (lambda given, cache: cache["pods"].add_handler(on_add=given), {"coroutine"}),
    "reconcile": (_controller(reconcile=lambda given: given), {"coroutine"}),
    "recover": (_controller(recover=lambda given: given), set()),
    "recover of a coroutine": (
        lambda given, _: shmcache.controller("pods", recover=given)(coroutine),
        {"coroutine"},
    ),
    "predicate": (_controller(predicates=lambda given: [given]), set()),
    "predicate of owns": (
        _controller(owns=lambda given: shmcache.Owns("nodes", predicates=(given,))),
        set(),
    ),
    "watches": (_controller(watches=lambda given: {"nodes": given}), {"generator"}),
    "source of a feeder": (
        lambda given, cache: Feeder(cache, cache.queue("q"), [("pods", given)]),
        {"generator"},
    ),
    "wait_until": (
        lambda given, cache: cache["pods"].wait_until("prod/x", given, timeout=0),
        set(),
    ),
    "transform": (lambda given, _: Plan(name="pods", transform=given).resource, set()),
    "index": (lambda given, _: Resource("pods", {"by": given}), {"generator"}),
}


@FORMS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_function_that_a_call_does_not_run_is_refused_where_it_is_declared(
    cache: shmcache.Cache, place: str, kind: str, form: str
) -> None:
    declare, runs = PLACES[place]
    function = formed(KINDS[kind])[form]
    if kind in runs:
        if place != "handler":  # a coroutine handler belongs to a loop
            declare(function, cache)
    else:
        with pytest.raises((TypeError, PlanError), match=r"function"):
            declare(function, cache)


@pytest.mark.parametrize("wrong", ["text", 7, object()], ids=["text", "number", "object"])
@pytest.mark.parametrize(
    "place", [place for place in PLACES if place not in {"index", "transform"}]
)
def test_anything_but_a_function_is_refused(
    cache: shmcache.Cache, place: str, wrong: object
) -> None:
    with pytest.raises(TypeError, match=r"function"):
        PLACES[place][0](wrong, cache)
