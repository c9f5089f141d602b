"""What shmcache is compared with, each behind the same questions.

Stores answer `ready(keys)`, `get(keys)` and `get_field(keys)`: the last two are timed loops.
Channels have a `Sender` and a `receiver`, see ring.py; `semaphore` is the limit for wake-up.
"""
