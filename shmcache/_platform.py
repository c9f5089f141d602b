"""Which cache this process has: that in shared memory, or a private one (shmcache.portable)."""

from __future__ import annotations

import os
import sys

PORTABLE = sys.platform != "linux" or os.environ.get("SHMCACHE_PORTABLE", "") not in {"", "0"}
"""Whether `import shmcache` gives the private one: on other systems, or if the environment asks."""
