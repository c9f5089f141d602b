"""Invariant tested: FakeSource answers as a real server does, so that what passes on it means
something; the real answers are recorded in tests/conformance.
"""

from __future__ import annotations

import threading

import pytest
from reflecting import pod, source_with

import shmcache.testing
from shmcache.protocol.items import Item
from shmcache.protocol.options import ListOptions
from shmcache.protocol.status import ServerStatus
from shmcache.source.base import FailureKind, SourceFailed
from shmcache.testing import FakeSource, FakeWatch, ManualClock

ALL = ListOptions()


def asking(version: str = "", *, stream: bool | None = None) -> ListOptions:
    return ListOptions(
        watch=True,
        resource_version=version,
        allow_bookmarks=True,
        send_initial_events=stream,
        timeout_seconds=300,
    )


def types(items: list[Item]) -> list[str]:
    return [item.type for item in items]


def listed(source: FakeSource, options: ListOptions = ALL) -> tuple[list[str], str, str]:
    with source.page(options) as page:
        keys = [item.key for items in page for item in items]
        return keys, page.meta.version, page.meta.continue_token


def status_of(watch: FakeWatch) -> ServerStatus:
    return ServerStatus.parse(0, watch.take()[-1].raw)


def test_all_exports_of_the_package_exist() -> None:
    for name in shmcache.testing.__all__:
        assert hasattr(shmcache.testing, name)
    with pytest.raises(AttributeError):
        _ = shmcache.testing.Nothing


def test_each_change_has_a_version_of_its_own_and_a_watch_sees_them_in_order() -> None:
    """client-go: fake_controller_source, RCNumber."""
    source = FakeSource()
    watch = source.listen(asking("10"))
    assert ["11", "12", "13"] == [
        source.create(pod("a")), source.update(pod("a", spec=1)), source.delete("prod/a"),
    ]  # fmt: skip

    assert ["11", "12", "13"] == [item.version for item in watch.take()]
    assert [] == watch.take()
    assert ["MODIFIED", "DELETED"] == types(source.listen(asking("11")).take())


def test_the_limit_counts_except_at_zero_with_a_watch_cache() -> None:
    source = source_with(*"abc")

    keys, version, token = listed(source, ListOptions(limit=2))
    assert (["prod/a", "prod/b"], "10") == (keys, version)
    source.delete("prod/c")
    assert (["prod/c"], "10", "") == listed(source, ListOptions(limit=2, continue_token=token))
    assert "" == listed(source, ListOptions(limit=1, resource_version="0"))[2]
    source.watch_cache = False
    assert listed(source, ListOptions(limit=1, resource_version="0"))[2]


def test_too_old_is_an_event_and_the_version_just_before_is_not() -> None:
    """R-AS-04, R-AS-09; client-go: ResetWatch."""
    source = source_with("a")
    open_watch = source.listen(asking("10"))
    source.forget()
    source.create(pod("b"))

    assert [] == open_watch.take()
    assert open_watch.ended
    old = source.listen(asking("9"))
    assert status_of(old).is_expired
    old.take()
    assert old.ended
    assert ["ADDED"] == types(source.listen(asking("10")).take())


def test_a_future_version_is_refused_to_lists_and_silent_for_watches() -> None:
    source = source_with("a")
    with pytest.raises(SourceFailed, match="Too large") as caught:
        listed(source, ListOptions(resource_version="11"))
    assert caught.value.failure.status
    assert caught.value.failure.status.is_too_large
    watch = source.listen(asking("20"), silence=90.0)
    source.clock.advance(89)

    assert [] == watch.take()
    source.clock.advance(1)
    with pytest.raises(SourceFailed, match="no byte") as silent:
        watch.take()
    assert FailureKind.SILENT is silent.value.failure.kind
    assert status_of(source.listen(asking("20", stream=True))).is_too_large


def test_bookmarks_come_each_minute_and_just_before_the_end() -> None:
    source = source_with("a")
    watch = source.listen(asking("10"))
    source.touch(5)
    seen = []
    while not watch.ended:
        seen += [(source.clock() - 1000, item.type, item.version) for item in watch.take()]
        source.clock.advance(1)

    assert [(t, "BOOKMARK", "15") for t in (60, 120, 180, 240, 298)] == seen


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_from_nowhere_is_a_watch_list(version: str) -> None:
    """R-HT-08."""
    first = source_with("a", "b").listen(asking(version)).take()

    assert ["ADDED", "ADDED", "BOOKMARK"] == types(first)
    assert b'"k8s.io/initial-events-end":"true"' in first[-1].raw


def test_a_server_without_watch_lists_says_so() -> None:
    source = source_with("a")
    source.watch_list = False

    with pytest.raises(SourceFailed, match="forbidden") as caught:
        source.listen(asking("", stream=True))
    assert caught.value.failure.status
    assert 422 == caught.value.failure.status.code


def test_a_backup_brings_back_its_objects_and_its_version() -> None:
    source = source_with("a", "b")
    source.update(pod("a", spec=1))
    source.delete("prod/b")
    watch = source.listen(asking("12"))
    source.restore(11)

    assert ["prod/a", "prod/b"] == sorted(source.objects)
    assert 11 == source.version
    assert b'"spec"' in source.objects["prod/a"]
    with pytest.raises(SourceFailed, match="reset"):
        watch.take()


def test_a_lost_event_is_lost_and_its_object_is_not() -> None:
    source = source_with("a")
    watch = source.listen(asking("10"))
    source.create(pod("b"), announced=False)

    assert [] == watch.take()
    assert ["prod/a", "prod/b"] == listed(source)[0]


def test_a_half_open_watch_neither_speaks_nor_ends() -> None:
    source = source_with("a")
    watch = source.listen(asking("10"), silence=1000.0)
    watch.kill()
    source.create(pod("b"))
    source.clock.advance(900)

    assert [] == watch.take()
    assert not watch.ended


def test_wrong_changes_are_refused() -> None:
    source = source_with("a")
    with pytest.raises(KeyError, match="exists"):
        source.create(pod("a"))
    with pytest.raises(KeyError, match="does not exist"):
        source.update(pod("b"))
    with pytest.raises(ValueError, match="past"):
        source.restore(11)
    with pytest.raises(ValueError, match="back"):
        ManualClock().advance(-1)


def test_as_a_source_its_watch_blocks_until_something_happens_or_it_is_cancelled() -> None:
    source = source_with("a")
    got: list[str] = []
    first, cancelled = threading.Event(), threading.Event()

    def follow() -> None:
        try:
            with source.watch(asking("10"), silence=90.0) as items:
                for batch in items:
                    got.extend(types(batch))
                    first.set()
        except SourceFailed as failed:
            got.append(failed.failure.kind.value)
            cancelled.set()

    thread = threading.Thread(target=follow)
    thread.start()
    source.create(pod("b"))
    assert first.wait(60)
    source.cancel()
    assert cancelled.wait(60)
    thread.join(60)

    assert ["ADDED", "cancelled"] == got
    with pytest.raises(SourceFailed):
        listed(source)
    assert [] == source.watches
