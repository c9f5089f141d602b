"""Watch of the `kubernetes` package: URL, namespace, selector; prints each event."""

import json
import sys

from kubernetes import client, watch

url, namespace, labels = sys.argv[1:]
api = client.CoreV1Api(client.ApiClient(client.Configuration(host=url)))
stream = watch.Watch().stream(api.list_namespaced_pod, namespace, label_selector=labels)
for event in stream:
    print(json.dumps([event["type"], event["object"].metadata.name]), flush=True)
