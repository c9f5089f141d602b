"""SharedInformer of the `kubernetes` package."""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from kubernetes import client
from kubernetes.informer import SharedInformer

url, namespace, labels = sys.argv[1:]
api = client.CoreV1Api(client.ApiClient(client.Configuration(host=url)))
informer = SharedInformer(api.list_namespaced_pod, namespace=namespace, label_selector=labels)


def printer_of(kind: str) -> Callable[[Any], None]:
    """A handler of events of this type."""
    return lambda pod: print(json.dumps([kind, pod.metadata.name]), flush=True)


for kind in ("ADDED", "MODIFIED", "DELETED"):
    informer.add_event_handler(kind, printer_of(kind))
informer.start()
threading.Event().wait()
