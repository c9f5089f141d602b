"""The API server's list/watch protocol without any I/O, as clients and servers both need it.

Bytes and parameters come in, items, statuses and decisions go out. Nothing here opens a socket,
reads a clock or starts a thread, so that the reflector, the testing server and `serve` speak by
the same rules.
"""
