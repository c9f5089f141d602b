"""The page of `shmcache ui` in Chromium: how soon does it show something, and what does it cost?

20 resources, 10,000 pods among them. The time until something is on the screen is Chromium's own
(first contentful paint), and the time until the table is, from the start of the navigation. A
change is stamped before it is stored; an observer in the page notes when its row is there. The cost
is the CPU time of the server process while a plain client reads the stream at 1,000 changes/s, and
while nobody does. Weight: all files, compressed.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

import shmcache
from benchmarks import harness
from benchmarks.harness import Row, not_asked, show_bytes
from benchmarks.scenes import objects
from shmcache.serve.ui.pages import load

PODS, RESOURCES = 10_000, 20
RATE, SECONDS = 1_000, 10.0
CHANGES = 200
PAINT_MS, CHANGE_MS, VIEWER, WEIGHT = 300.0, 100.0, 0.05, 150 << 10
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
OBSERVER = """() => {
  window.seen = {};
  new MutationObserver((records) => {
    for (const record of records) for (const row of record.addedNodes)
      for (const found of (row.textContent ?? "").matchAll(/stamped-(\\d+)/g))
        window.seen[found[1]] ??= Date.now();
  }).observe(document.body, { childList: true, subtree: true });
}"""


def run(quick: bool) -> list[Row]:
    count, seconds = (20, 2.0) if quick else (CHANGES, SECONDS)
    with cache() as writer, server(writer.name) as (process, url):
        viewed = cost(writer, process, url, seconds)
        return [*_browser(writer, url, count), *_costs(viewed), _weight()]


def _browser(writer: shmcache.Writer, url: str, count: int) -> list[Row]:
    questions = ("first paint", "a change ▸ its row on the screen")
    if shutil.which("chromium") is None:
        return not_asked(*questions)
    paints, tables, lags = in_browser(writer, url, count)
    paint, late = statistics.median(paints), sorted(lags)[int(len(lags) * 0.99) - 1]
    return [
        Row(
            question=f"{questions[0]}, {PODS:,} pods and {RESOURCES} resources",
            ours=f"{paint:.0f} ms",
            peer=f"the table with data {statistics.median(tables):.0f} ms",
            must=f"≤ {PAINT_MS:g} ms",
            met=paint <= PAINT_MS,
        ),
        Row(
            question=questions[1],
            ours=f"p50 {statistics.median(lags):.0f} ms, p99 {late:.0f} ms",
            peer="",
            must=f"p99 ≤ {CHANGE_MS:g} ms",
            met=late <= CHANGE_MS,
        ),
    ]


def _costs(found: tuple[float, float]) -> list[Row]:
    viewer, nobody = found
    return [
        Row(
            question=f"one viewer at {RATE:,} changes/s, CPU of the server",
            ours=f"{viewer:.2%} of a core",
            peer="",
            must=f"≤ {VIEWER:.0%}",
            met=viewer <= VIEWER,
        ),
        Row(
            question=f"nobody looks at {RATE:,} changes/s, CPU of the server",
            ours=f"{nobody:.2%} of a core",
            peer="",
            must="0 but for a look at the clock each second",
            met=nobody <= 0.002,
        ),
    ]


def _weight() -> Row:
    size = sum(len(page.zipped) for path, page in load().items() if not path.endswith("/"))
    return Row(
        question="weight of the page, compressed",
        ours=show_bytes(size),
        peer="",
        must=f"≤ {show_bytes(WEIGHT)}",
        met=size <= WEIGHT,
    )


# ---- the scene -----------------------------------------------------------------------------------


@contextlib.contextmanager
def cache() -> Iterator[shmcache.Writer]:
    names = ["pods", *(f"things{number}" for number in range(RESOURCES - 1))]
    with shmcache.Writer("bench-ui", names) as writer:
        writer.replace("pods", objects.pods(PODS), version="1")
        for name in names[1:]:
            writer.replace(name, [_small("one")], version="1")
        yield writer


def _small(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "prod", "name": name}}


@contextlib.contextmanager
def server(name: str) -> Iterator[tuple[psutil.Process, str]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        argv = [sys.executable, "-m", "shmcache", "ui", "--cache", name, "--listen", "127.0.0.1:0"]
        with log.open("wb") as file:
            process = subprocess.Popen(argv, stderr=file)
        try:
            while not (found := re.search(r"its page is (\S+)", log.read_text())):
                if process.poll() is not None:
                    raise RuntimeError(log.read_text())
                time.sleep(0.05)
            yield psutil.Process(process.pid), found[1]
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def changing(writer: shmcache.Writer) -> Iterator[None]:
    """1,000 changes a second, ten in each batch."""
    ended = threading.Event()

    def change() -> None:
        number, due = 0, time.monotonic()
        while not ended.wait(max(due - time.monotonic(), 0)):
            due += 10 / RATE
            with writer.batch():
                for _ in range(10):
                    number += 1
                    writer.apply("things1", [_small(f"n-{number % 500}") | {"n": number}])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cost(
    writer: shmcache.Writer, process: psutil.Process, url: str, seconds: float
) -> tuple[float, float]:
    """The share of a core that the server takes: with one viewer, and with none."""

    def spent(function: Callable[[float], object]) -> float:
        before, start = float(sum(process.cpu_times()[:2])), time.monotonic()
        function(seconds)
        used = float(sum(process.cpu_times()[:2])) - before
        return used / (time.monotonic() - start)

    with changing(writer):
        nobody = spent(time.sleep)
        stream = http.client.HTTPConnection(url.split("/")[2])
        stream.request("GET", "/ui/stream")
        answer = stream.getresponse()
        answer.readline()  # it has begun

        def view(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                answer.readline()

        viewer = spent(view)
        answer.close()
        stream.close()
    return viewer, nobody


def in_browser(
    writer: shmcache.Writer, url: str, count: int
) -> tuple[list[float], list[float], list[float]]:
    """First paints, first tables, and the lag of each change; in milliseconds."""
    from playwright.sync_api import sync_playwright

    paints, tables = [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(5):
            page = browser.new_page()
            start = time.perf_counter()
            page.goto(url)
            page.wait_for_selector("main table tbody tr")
            tables.append((time.perf_counter() - start) * 1e3)
            found = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(page.evaluate(found))
            page.close()
        page = browser.new_page()
        page.goto(f"{url}#/changes")
        page.get_by_text("waiting for a change").wait_for()
        page.evaluate(OBSERVER)
        stamps = {}
        for number in range(count):
            stamps[f"{number}"] = time.time() * 1e3
            writer.apply("things2", [_small(f"stamped-{number}")])
            time.sleep(0.02 + 0.007 * (number % 5))
        page.wait_for_function(f"() => Object.keys(window.seen).length === {count}")
        seen = page.evaluate("window.seen")
        browser.close()
    return paints, tables, [seen[number] - at for number, at in stamps.items()]


if __name__ == "__main__":
    harness.main(__doc__, run)
