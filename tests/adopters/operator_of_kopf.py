"""An operator on kopf that prints the events of pods and the content of an index."""

import json
import os
import sys
from typing import Any

import kopf


@kopf.on.login()  # type: ignore[untyped-decorator]
def login(**_: Any) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server=os.environ["SERVER"])


@kopf.index("pods", labels={"app": kopf.PRESENT})  # type: ignore[untyped-decorator]
def apps(name: str, labels: Any, **_: Any) -> Any:
    return {labels["app"]: name}


@kopf.on.event("pods")  # type: ignore[untyped-decorator]
def on_event(event: Any, name: str, apps: Any, **_: Any) -> None:
    web = sorted(apps.get("web", []))
    sys.stdout.write(json.dumps([event["type"], name, web]) + "\n")
    sys.stdout.flush()
