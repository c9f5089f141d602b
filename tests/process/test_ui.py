"""The page of `shmcache ui` in a real browser: every view, a thousand changes a second, a reflector
that is killed and comes back, keys, colours, a narrow screen, accessibility."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmcache
from shmcache.engine.instant_writer import InstantWriter
from shmcache.testing import ApiServer

INSTALL = "pip install playwright axe-playwright-python"
playwright = pytest.importorskip("playwright.sync_api", reason=INSTALL)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=INSTALL)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="apt-get install chromium")

PATIENCE = 30.0
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@contextlib.contextmanager
def running(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", "shmcache", *arguments], stderr=file)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)


def address(log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while not (found := re.search(r"its page is (\S+)", log.read_text())):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found[1]


def pod(number: int) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"web-{number}", "namespace": "prod", "labels": {"n": f"{number}"}},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }


@contextlib.contextmanager
def watched(name: str, tmp_path: Path) -> Iterator[tuple[shmcache.Writer, str]]:
    """A cache that this process writes, and its page."""
    log = tmp_path / "ui.log"
    with shmcache.Writer(name, ["pods", "nodes"], ring_slots=8192) as writer:
        writer.replace("pods", [pod(number) for number in range(30)], version="100")
        writer.replace("nodes", [{"metadata": {"name": "node-1"}}], version="100")
        with running("ui", "--cache", name, "--listen", "127.0.0.1:0", log=log):
            yield writer, address(log)


def opened(browser: Any, url: str, **options: Any) -> Any:
    """The page; `faults` collects its errors and its requests to other hosts."""
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE * 1000)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("request", lambda one: one.url.startswith(url.partition("/ui/")[0])
            or page.faults.append(f"an outside request: {one.url}"))  # fmt: skip
    page.goto(url)
    page.wait_for_selector("main table")
    return page


def until(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_every_view_shows_the_cache(browser: Any, name: str, tmp_path: Path) -> None:
    with watched(name, tmp_path) as (writer, url), shmcache.attach(name):
        page = opened(browser, url)
        assert page.locator("#name").inner_text() == name
        assert page.locator("#link").inner_text() == "live"
        row = page.locator("tbody tr", has_text="pods")
        assert "30" in row.inner_text()

        page.get_by_role("link", name="Workers").click()
        page.locator("tbody tr", has_text=f"{os.getpid()}").first.wait_for()

        page.get_by_role("link", name="Queues").click()
        page.get_by_text("No process keeps a queue").wait_for()

        page.get_by_role("link", name="Changes").click()
        page.get_by_text("waiting for a change").wait_for()
        writer.apply("pods", [{**pod(3), "status": {"phase": "Failed"}}])
        page.locator("tbody tr", has_text="prod/web-3").click()
        page.get_by_role("tab", name="History").click()
        page.locator(".diff tr", has_text="status.phase").wait_for()
        assert '"Running"' in page.locator(".diff").inner_text()

        page.get_by_role("link", name="Objects").click()
        page.locator("#o-resource").select_option("pods")
        page.locator("tbody tr", has_text="web-7").first.click()
        page.locator(".tree", has_text="nodeName").wait_for()
        assert page.faults == []
        page.close()


def test_the_last_minutes_and_the_age_of_each_version(
    browser: Any, name: str, tmp_path: Path
) -> None:
    with watched(name, tmp_path) as (writer, url):
        noting = InstantWriter(writer.place, 0o600)
        noting.note(writer.position())
        for phase in ("Failed", "Unknown"):
            writer.apply("pods", [{**pod(3), "status": {"phase": phase}}])
            noting.note(writer.position())
        writer.delete("pods", "prod/web-4")
        noting.note(writer.position())
        page = opened(browser, f"{url}#/changes")
        page.locator("#c-resource option").nth(2).wait_for(state="attached")
        page.locator("#c-since").select_option("300")
        page.get_by_text("2 objects have changed since then.").wait_for()
        shown = [one.inner_text() for one in page.locator("tbody tr").all()]
        assert ["deleted", "modified"] == [text.split("\t")[1] for text in shown]
        assert all(re.search(r"\d (ms|s|min) ago", text) for text in shown)
        assert "(2 changes)" in shown[1]

        page.locator("tbody tr", has_text="prod/web-3").click()
        page.get_by_role("tab", name="History").click()
        versions = page.locator(".versions button")
        versions.filter(has_text=re.compile("ago")).first.wait_for()
        versions.nth(1).click()
        page.locator(".diff tr", has_text='"Failed"').wait_for()
        assert '"Running"' in page.locator(".diff").inner_text()
        page.get_by_label("Compared with").select_option("1")
        page.locator(".diff tr", has_text='"Unknown"').wait_for()
        assert '"Running"' not in page.locator(".diff").inner_text()
        assert page.faults == []
        noting.close()
        page.close()


@pytest.mark.parametrize("place", ["%", "constructor", "__proto__", "objects/%/%", "nothing"])
def test_an_address_that_leads_nowhere_breaks_nothing(
    browser: Any, name: str, tmp_path: Path, place: str
) -> None:
    with watched(name, tmp_path) as (_, url):
        page = opened(browser, url)
        page.goto(f"{url}#/{place}")
        page.locator("h1").wait_for()
        page.get_by_role("link", name="Workers").click()
        page.locator("h1", has_text="Workers").wait_for()
        assert page.faults == []
        page.close()


def test_queues_and_controllers(browser: Any, name: str, tmp_path: Path) -> None:
    with watched(name, tmp_path) as (_, url), shmcache.attach(name) as cache:
        queue = cache.queue("work")
        queue.add("prod/web-1")
        queue.add_after("prod/web-2", 3600)
        page = opened(browser, url)
        page.get_by_role("link", name="Queues").click()
        text = page.locator("tbody tr", has_text="work").inner_text()
        assert text.split("\t")[:2] == ["work", "1"]
        queue.close()
        page.close()


def test_a_thousand_changes_a_second_stay_readable(browser: Any, name: str, tmp_path: Path) -> None:
    with watched(name, tmp_path) as (writer, url):
        page = opened(browser, f"{url}#/changes")
        for version in range(2000):
            writer.apply("pods", [pod(version % 30) | {"n": version}])
        writer.apply("pods", [pod(4711)])
        page.locator("tbody tr", has_text="prod/web-4711").wait_for()
        assert page.locator("tbody tr").count() <= 200
        shown, more = (
            int(found.replace(",", ""))
            for found in re.findall(r"([\d,]+) (?:shown|more)", page.locator(".count").inner_text())
        )
        assert shown + more == 2001
        assert page.faults == []
        page.close()


def test_a_killed_reflector_is_reported_and_its_successor_shown(
    browser: Any, name: str, tmp_path: Path
) -> None:
    with ApiServer() as api, contextlib.ExitStack() as stack:
        api.create("pods", pod(1))
        flags = ("run", "pods", "--cache", name, "-s", api.url)
        log = tmp_path / "ui.log"
        run = stack.enter_context(running(*flags, log=tmp_path / "run.log"))
        ui = ("ui", "--cache", name, "--listen", "127.0.0.1:0")
        stack.enter_context(running(*ui, log=log))
        page = opened(browser, address(log))
        page.locator(".pill", has_text="synced").wait_for()
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE)
        page.locator("#notice", has_text="The reflector has died").wait_for()
        stack.enter_context(running(*flags, log=tmp_path / "again.log"))
        page.locator("#notice").wait_for(state="hidden")
        page.get_by_role("link", name="Changes").click()
        api.create("pods", pod(2))
        page.locator("tbody tr", has_text="prod/web-2").wait_for()
        assert page.faults == []
        page.close()


def test_a_server_that_ends_is_reported_and_its_successor_found(
    browser: Any, name: str, tmp_path: Path
) -> None:
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.replace("pods", [pod(1)], version="1")
        log = tmp_path / "ui.log"
        with running("ui", "--cache", name, "--listen", "127.0.0.1:0", log=log):
            url = address(log)
            page = opened(browser, url)
        page.locator("#notice", has_text="the data are old").wait_for()
        port = url.split(":")[2].split("/")[0]
        with running("ui", "--cache", name, "--listen", f"127.0.0.1:{port}", log=log):
            page.locator("#link", has_text="live").wait_for()
            page.locator("#notice").wait_for(state="hidden")
        page.close()


def test_a_token_is_requested_once(browser: Any, name: str, tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "ui.log"
    tokens.write_text("secret,ann\n")
    with shmcache.Writer(name, ["pods"]) as writer:
        writer.replace("pods", [pod(1)], version="1")
        flags = ("--cache", name, "--listen", "127.0.0.1:0", "--tokens", str(tokens))
        with running("ui", *flags, log=log):
            page = browser.new_page()
            page.goto(address(log))
            page.locator("#token").fill("secret")
            page.keyboard.press("Enter")
            page.wait_for_selector("main table")
            page.reload()
            page.wait_for_selector("main table")
            assert not page.locator("#login").is_visible()
            page.close()


def test_keys_colours_and_search(browser: Any, name: str, tmp_path: Path) -> None:
    with watched(name, tmp_path) as (_, url):
        page = opened(browser, url)
        for keys, title in (("gw", "Workers"), ("gc", "Changes"), ("gb", "Objects")):
            for key in keys:
                page.keyboard.press(key)
            page.locator("h1", has_text=title).wait_for()
        page.keyboard.press("/")
        page.keyboard.type("web-11")
        page.keyboard.press("Enter")
        page.locator("tbody tr", has_text="prod/web-11").wait_for()
        page.locator("h1").click()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.locator("h1", has_text="prod/web-11").wait_for()
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        colours = set()
        for _ in range(3):
            page.keyboard.press("t")
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2
        assert page.faults == []
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_view_has_a_serious_fault_of_accessibility(
    browser: Any, name: str, tmp_path: Path, scheme: str, width: int
) -> None:
    with watched(name, tmp_path) as (writer, url), shmcache.attach(name) as cache:
        cache.queue("work").add("prod/web-1")
        page = opened(browser, url, color_scheme=scheme, bypass_csp=True,
                      viewport={"width": width, "height": 844})  # fmt: skip
        views = ("", "workers", "queues", "changes", "objects/pods", "objects/pods/prod%2Fweb-1")
        for view in views:
            page.goto(f"{url}#/{view}")
            page.wait_for_timeout(300)
            writer.apply("pods", [pod(1) | {"view": view}])
            found = axe.Axe().run(page).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"][:200])
                for one in found
                if one["impact"] in {"serious", "critical"}
            ]
            assert serious == [], view
        page.close()


def test_a_narrow_screen_needs_no_sideways_scrolling(
    browser: Any, name: str, tmp_path: Path
) -> None:
    with watched(name, tmp_path) as (writer, url):
        page = opened(browser, url, viewport={"width": 360, "height": 740})
        for view in ("", "workers", "queues", "changes", "objects/pods"):
            page.goto(f"{url}#/{view}")
            page.wait_for_timeout(200)
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not wide, view
        tops = page.evaluate("[...document.querySelectorAll('nav a')].map((a) => a.offsetTop)")
        assert len(set(tops)) == 1, "the navigation takes more than one line"
        page.goto(f"{url}#/changes")
        page.get_by_text("waiting for a change").wait_for()
        writer.apply("pods", [{**pod(3), "status": {"phase": "Failed"}}])
        key = page.locator("td.key", has_text="prod/web-3")
        key.wait_for()
        box = key.bounding_box()
        assert box["x"] + box["width"] <= 360, "the key of a change is beyond the edge"
        page.close()
