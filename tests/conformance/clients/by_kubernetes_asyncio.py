"""Watch of kubernetes_asyncio."""

import asyncio
import json
import sys

from kubernetes_asyncio import client, watch

url, namespace, labels = sys.argv[1:]


async def main() -> None:
    """Until it is ended."""
    async with client.ApiClient(client.Configuration(host=url)) as connection:
        api = client.CoreV1Api(connection)
        stream = watch.Watch().stream(
            api.list_namespaced_pod, namespace=namespace, label_selector=labels
        )
        async for event in stream:
            print(json.dumps([event["type"], event["object"].metadata.name]), flush=True)


asyncio.run(main())
