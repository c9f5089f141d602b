"""Watch of kr8s."""

import json
import sys

import kr8s

url, namespace, labels = sys.argv[1:]
config = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": url}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {}}],
    "current-context": "c",
}
api = kr8s.api(kubeconfig=config)
for kind, pod in api.watch("pods", namespace=namespace, label_selector=labels):
    print(json.dumps([kind, pod.name]), flush=True)
