"""Watch of lightkube."""

import json
import sys

from lightkube import Client
from lightkube.config.kubeconfig import Cluster, KubeConfig, User
from lightkube.resources.core_v1 import Pod

url, namespace, labels = sys.argv[1:]
name, value = labels.split("=")
client = Client(config=KubeConfig.from_one(cluster=Cluster(server=url), user=User()))
for kind, pod in client.watch(Pod, namespace=namespace, labels={name: value}):
    print(json.dumps([kind, pod.metadata.name]), flush=True)
