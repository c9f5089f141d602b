"""Invariant tested: no feed of a resource moves its version back below that of another feed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from shmcache import states
from shmcache.engine.budget import Budget, Weights
from shmcache.engine.content import Content
from shmcache.engine.resource_state import ResourceState
from shmcache.errors import CacheFull


class Publishing:
    """A writer that lets something else happen before each publication."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def set_version(self, _resource: str, version: str) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.versions.append(version)

    def apply_items(self, resource: str, _items: Any, *, version: str | None) -> None:
        self.set_version(resource, version or "")

    @contextmanager
    def begin_replace(self, resource: str, *, prefix: str) -> Any:
        staged = SimpleNamespace(version=None, prefix=prefix)
        yield staged
        self.set_version(resource, staged.version or "")


def finish(content: Content, version: str) -> None:
    content.begin()
    content.finish(version)


PUBLICATIONS: dict[str, Callable[[Content, str], object]] = {
    "a bookmark": Content.advance,
    "changes": lambda content, version: content.apply([], version),
    "a new content": finish,
}


@pytest.mark.parametrize("what", PUBLICATIONS)
def test_a_feed_that_is_about_to_publish_is_not_overtaken_by_another_one(what: str) -> None:
    writer, turn = Publishing(), Turn()
    standing = ResourceState(120.0, lambda _state, _reason: True, lambda: 0.0)
    standing.join(["a", "b"])
    first, second = (
        Content(
            writer,  # type: ignore[arg-type]
            "configmaps",
            Weights(Budget("configmaps", 0)),
            namespace=namespace,
            transforming=None,
            advance=partial(standing.advance, namespace),
            turn=turn,
        )
        for namespace in "ab"
    )
    first.advance("5")
    second.advance("5")
    overtaking = threading.Thread(target=second.advance, args=("9",))

    def overtake() -> None:
        """The other feed receives the same version, and gets as far as it can."""
        overtaking.start()
        turn.arrived.wait(30)

    turn.arrived.clear()
    writer.meanwhile = overtake
    PUBLICATIONS[what](first, "9")
    overtaking.join(30)

    assert "9" == writer.versions[-1]
    assert sorted(writer.versions, key=int) == writer.versions
    assert standing.current == (states.ABSENT, "")


def test_a_new_content_that_cannot_be_published_takes_its_version_back() -> None:
    """The shared memory may be full, for example."""
    writer = Publishing()
    standing = ResourceState(120.0, lambda _state, _reason: True, lambda: 0.0)
    standing.join(["a", "b"])
    content = Content(
        writer,  # type: ignore[arg-type]
        "configmaps",
        Weights(Budget("configmaps", 0)),
        namespace="a",
        transforming=None,
        advance=partial(standing.advance, "a"),
        turn=threading.Lock(),
    )
    content.advance("5")
    for what in ("changes", "a new content"):
        writer.meanwhile = no_room
        with pytest.raises(CacheFull):
            PUBLICATIONS[what](content, "9")
        assert "5" == content.version == standing.advance("b", "9")


def test_refused_objects_are_logged_now_and_then_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = Content(
        Publishing(),  # type: ignore[arg-type]
        "configmaps",
        Weights(Budget("configmaps", 0)),
        transforming=None,
        advance=lambda version: version,
        turn=threading.Lock(),
    )
    for number in range(1, 12):
        content.refuse(f"a/{number}", "no JSON")

    assert 11 == content.refused
    assert caplog.messages == [
        "configmaps: a/1 is refused: no JSON",
        "configmaps: a/10 is refused: no JSON",
        "configmaps: refused 10 values so far",
    ]


def no_room() -> None:
    raise CacheFull("no room")


class Turn:
    """A lock that reports an attempt to take it while it is held."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if self._lock.locked():
            self.arrived.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
