"""Takes the pictures of docs/ui.md, in light and dark: python release/page.py.

Needs playwright and Debian's chromium. An API server with a small cluster, a reflector, three
workers and a controller run for a minute; then the page is taken as a visitor sees it.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
WIDE, NARROW = {"width": 1180, "height": 640}, {"width": 390, "height": 844}
SCREENS = {
    "ui.png": ("light", WIDE, ""),
    "ui-dark.png": ("dark", WIDE, ""),
    "ui-phone.png": ("light", NARROW, ""),
    "ui-phone-dark.png": ("dark", NARROW, "#/changes"),
}
"""Files of docs/pictures: colours, size of the screen, view."""
SECONDS = 66
CHANGES_PER_SECOND = 40
NAME = "cluster"
KINDS = {"pods": 240, "nodes": 12, "services": 20, "configmaps": 60, "deployments.apps": 24}
WORKER = """
import shmcache, sys, time
with shmcache.attach(sys.argv[1], timeout=60) as cache:
    cache["pods"].add_handler(on_update=lambda old, new: new["metadata"]["name"])
    cache.start()
    time.sleep(600)
"""
CONTROLLER = """
import shmcache, sys
@shmcache.controller("pods")
def restarts(key, cache):
    return shmcache.Requeue(after=600)
sys.exit(restarts.run(sys.argv[1]))
"""


def filled(server: ApiServer) -> None:
    """Creates the objects of the cluster."""
    for resource, count in KINDS.items():
        for number in range(count):
            metadata: dict[str, Any] = {"name": f"web-{number}", "labels": {"app": "web"}}
            if resource != "nodes":
                metadata["namespace"] = f"team-{number % 4}"
            server.create(resource, {"metadata": metadata, "spec": {"nodeName": "node-1"}})


def changed(server: ApiServer, seconds: float) -> None:
    """Updates objects at an uneven rate."""
    until = time.monotonic() + seconds
    chosen = random.Random(7)
    kinds = [*KINDS]
    while time.monotonic() < until:
        resource = chosen.choices(kinds, [60, 10, 2, 8, 20])[0]
        obj = chosen.choice(server.list(resource))
        obj["metadata"].setdefault("annotations", {})["seen"] = f"{time.time():.3f}"
        server.update(resource, obj)
        time.sleep(chosen.expovariate(CHANGES_PER_SECOND))


def taken(address: str, server: ApiServer) -> None:
    """Opens the page on each screen, waits until its lines are full, and takes it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        pages = {}
        for name, (scheme, size, view) in SCREENS.items():
            pages[name] = browser.new_page(color_scheme=scheme, viewport=size)  # type: ignore[arg-type]
            pages[name].goto(address + view)
        changed(server, SECONDS)
        for name, page in pages.items():
            page.bring_to_front()
            changed(server, 3)
            page.screenshot(path=PICTURES / name)
        browser.close()


def main() -> None:
    """Starts everything, and ends it."""
    with tempfile.TemporaryDirectory() as folder, ApiServer(seed=7) as server:
        filled(server)
        path = server.kubeconfig(str(Path(folder) / "kubeconfig"))
        environment = {**os.environ, "KUBECONFIG": path, "PYTHONPATH": str(ROOT)}
        shown = [
            sys.executable,
            "-m",
            "shmcache",
            "ui",
            "--cache",
            NAME,
            "--listen",
            "127.0.0.1:8002",
        ]
        commands = [
            [sys.executable, "-m", "shmcache", "run", *KINDS, "--cache", NAME, "--no-keep"],
            *([sys.executable, "-c", WORKER, NAME] for _ in range(3)),
            [sys.executable, "-c", CONTROLLER, NAME],
            shown,
        ]
        running = [subprocess.Popen(one, env=environment) for one in commands]
        try:
            time.sleep(10)
            taken("http://127.0.0.1:8002/ui/", server)
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(60)


if __name__ == "__main__":
    main()
