"""The peers of shmcache, all with the same interface.

Stores answer `ready(keys)`, `get(keys)` and `get_field(keys)`: the last two are timed loops.
Channels have a `Sender` and a `receiver`, see ring.py; `semaphore` is the limit for wake-up.
"""
