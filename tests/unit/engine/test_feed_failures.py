"""Invariant tested: a bug that a feed meets is reported and counted, and the feed starts again."""

from __future__ import annotations

from typing import Any

import pytest
from confirmed_reads import eventually, pod, running

from shmcache import states


def test_a_feed_that_meets_a_bug_reports_it_and_starts_again(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(name) as run:
        [feed] = run.engine._kept[0].feeds
        content, standing = feed.parts.content, feed.parts.standing
        reports: list[tuple[Any, ...]] = []
        applying, reporting = content.apply, standing.report

        def fail(*_: Any) -> None:
            monkeypatch.setattr(content, "apply", applying)
            raise RuntimeError("no such luck")

        def report(*found: Any) -> None:
            reports.append(found)
            reporting(*found)

        monkeypatch.setattr(standing, "report", report)
        monkeypatch.setattr(content, "apply", fail)
        before = run.pods.status.counters["errors"]
        run.server.create("pods", pod("late"))

        eventually(lambda: "prod/late" in run.pods, "it does not start again")
        assert ("", states.RETRYING, "a bug: RuntimeError('no such luck')") in reports
        eventually(lambda: run.pods.status.counters["errors"] > before, "it is not counted")
        assert "pods: unexpected error; restarting this feed" in caplog.messages
