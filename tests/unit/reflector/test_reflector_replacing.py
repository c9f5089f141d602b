"""Invariant tested: a new content becomes visible as a whole, without deleted objects and with
those added meanwhile, whatever happened while it was staged.

Of the upstream tests of queues and replacement these are the ones that concern the reflector:
ReplaceMakesDeletions*, ResyncNonExisting, ReplaceAtomic, ReplaceEvents, detectLineJumpers,
HasSynced*. Those of batches and broken items (PopBatch, BrokenItems, ProcessDeltasInBatch) are the
writer's: test_writer.py; those of handlers (UpdateResyncRace) the informer's.
"""

from __future__ import annotations

import random

import pytest
from reflecting import Script, bookmark, item, listing, names, pod, source_with, streaming

from shmcache import states
from shmcache.reflector.events import Apply, BeginReplace, FinishReplace, List, Stage, Watch
from shmcache.testing import FakeSource, statuses


def lose_history(source: FakeSource) -> None:
    source.touch()
    source.forget()


def test_objects_deleted_without_a_watch_are_gone_after_the_list() -> None:
    """client-go: ReplaceMakesDeletions, ResetWatch."""
    source = source_with("a", "b", "c")
    driver = listing(source)
    source.watches[0].cut(statuses.reset())
    source.delete("prod/b")
    source.update(pod("a", spec=1))
    source.create(pod("d"))
    lose_history(source)

    driver.run(10.0)

    assert ["a", "c", "d"] == names(driver)
    assert source.objects == driver.content


def test_an_object_that_only_a_watch_brought_is_gone_too() -> None:
    """client-go: ReplaceMakesDeletionsForObjectsOnlyInQueue."""
    source = source_with("a")
    driver = listing(source)
    source.create(pod("b"))
    driver.settle()
    source.watches[0].cut(statuses.reset())
    source.delete("prod/b")
    lose_history(source)

    driver.run(10.0)

    assert ["a"] == names(driver)


def test_a_relist_does_not_restore_deleted_objects() -> None:
    """client-go: ResyncNonExisting."""
    source = source_with("a", "b")
    driver = listing(source)
    source.delete("prod/a")
    driver.settle()
    for _ in range(3):
        lose_history(source)
        driver.run(10.0)

    assert ["b"] == names(driver)


@pytest.mark.parametrize("start", [listing, streaming])
def test_an_empty_content_is_synced_and_so_is_one_of_deletions_only(start: object) -> None:
    """client-go: HasSynced, HasSyncedCorrectOnDeletion."""
    source = FakeSource()
    driver = streaming(source) if start is streaming else listing(source)
    driver.settle()
    assert states.SYNCED == driver.state
    assert 1 == driver.replaces
    assert {} == driver.content

    source.create(pod("a"))
    driver.run(2.0)
    source.delete("prod/a")
    lose_history(source)
    driver.run(10.0)
    assert {} == driver.content
    assert states.SYNCED == driver.state


def test_the_content_changes_only_when_all_pages_are_there() -> None:
    """client-go: ReplaceAtomic: staging, pages, one FinishReplace."""
    made = Script()
    seen = [*made.first]
    for n in range(5):
        seen += made.listed("10", f"token-{n}")
    seen += made.listed("10")

    assert 1 == seen.count(BeginReplace())
    assert 1 == seen.count(FinishReplace("10"))
    last_list = max(at for at, action in enumerate(seen) if isinstance(action, List))
    assert last_list < seen.index(FinishReplace("10"))
    assert isinstance(seen[-1], Watch)


def test_a_list_that_fails_half_way_changes_nothing() -> None:
    source = source_with(*"abcd")
    driver = listing(source, page_size=2, page_always=True)
    before = dict(driver.content)
    source.delete("prod/a")
    source.forget()
    source.refuse(statuses.reset(), on="list", after=1)

    driver.run_until(lambda: "reset" in driver.reason)
    assert before == driver.content

    driver.run_until(lambda: driver.replaces == 2)
    assert list("bcd") == names(driver)


def test_pages_and_stream_bring_the_same_content() -> None:
    """client-go: ReplaceEvents: both ways, one result."""
    source = source_with(*"abcdefgh")
    source.delete("prod/c")
    source.update(pod("d", spec=1))

    paged, streamed = listing(source, page_size=3, page_always=True), streaming(source)
    streamed.settle()

    assert source.objects == paged.content == streamed.content
    assert paged.version == streamed.version


def test_no_event_overtakes_another(rng: random.Random) -> None:
    """client-go: detectLineJumpers: per key and across keys, whatever the batches."""
    source = FakeSource()
    driver = streaming(source)
    expected = []
    for n in range(200):
        source.batch = rng.randint(1, 5)
        name = rng.choice("abc")
        exists = f"prod/{name}" in source.objects
        if exists and rng.random() < 0.4:
            expected.append(source.delete(f"prod/{name}"))
        elif exists:
            expected.append(source.update(pod(name, n=n)))
        else:
            expected.append(source.create(pod(name)))
        if rng.random() < 0.2:
            driver.settle()
    driver.settle()

    assert expected == [each.version for batch in driver.applied for each in batch]
    assert source.objects == driver.content


def test_a_deletion_before_the_end_of_a_stream_leaves_no_ghost() -> None:
    made = Script(use_watch_list=True)
    made.opened()

    actions = made.received(item("ADDED", "a", 5), item("DELETED", "a", 11), bookmark(11, "true"))

    assert Stage([item("ADDED", "a", 5), item("DELETED", "a", 11)]) == actions[0]
    assert not any(isinstance(action, Apply) for action in actions)
