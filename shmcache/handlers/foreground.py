"""cache.run(): handlers until a signal ends the process."""

from __future__ import annotations

import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from shmcache.reader.cache import Cache

GRACE_SECONDS = 30.0
"""For handlers under way at the end: as long as Kubernetes waits for a pod."""


def run(cache: Cache) -> None:
    """Starts, sleeps until close(), SIGTERM or SIGINT, and returns when no handler runs any more.

    In another thread than the main one it leaves signals alone.
    """
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if main else ()
    before = {number: signal.signal(number, end) for number in numbers}
    informer = cache.informer
    informer.on_stop.append(ended.set)
    try:
        cache.start()
        ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        informer.stop()
        if not cache.closed:
            cache.nudge()
        informer.join(GRACE_SECONDS)
        cache.close()
