"""The memory of a worker without shmcache: the demo's pods as dicts of its own.

python -m shmcache.cli.demo.dicts COUNT      prints the bytes of private memory that they take
"""

from __future__ import annotations

import gc
import json
import random
import sys

from shmcache.cli.demo.objects import pods
from shmcache.cli.demo.worker import private_kib


def main(count: int) -> None:
    """Measures, and says it: decoded one by one from their JSON, as a client's watch does."""
    before = private_kib()
    kept = [json.loads(json.dumps(obj)) for obj in pods(count, random.Random(1))]
    gc.collect()
    print((private_kib() - before) << 10 if kept else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
