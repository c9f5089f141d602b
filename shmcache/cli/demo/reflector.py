"""`shmcache run` for the demo: the same command, which drains when its parent is gone.

python -m shmcache.cli.demo.reflector ARGUMENTS OF RUN
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from shmcache.__main__ import main

LOOK_SECONDS = 0.5


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # ctrl-C in a terminal reaches every process of the demo: the parent alone says when
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sys.exit(main(["run", *sys.argv[1:]]))
