"""A watch over WebSocket, by the `websockets` package."""

import json
import sys
from urllib.parse import quote

from websockets.sync.client import connect
from websockets.typing import Origin

url, namespace, labels = sys.argv[1:]
url = url.replace("http", "ws", 1)
path = f"/api/v1/namespaces/{namespace}/pods?watch=1&labelSelector={quote(labels)}"
with connect(url + path, origin=Origin("http://127.0.0.1")) as socket:
    for line in socket:
        event = json.loads(line)
        print(json.dumps([event["type"], event["object"]["metadata"]["name"]]), flush=True)
