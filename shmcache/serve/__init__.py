"""`shmcache serve`: the API server's read side, answered from shared memory over HTTP/1.1.

    loop          one thread: descriptors, timers, what other threads hand over
    connection    bytes in and out of one client, one request after another
    heads, bodies, requests    bytes ▸ Request
    server        listener, limits, the cache and its bell, what runs for a request
    routes        Request ▸ permission, target, the part that answers
    catalogue, scope           which resources there are, and how much of each
    reads, lists, past, shapes, documents    answers
    access, review, proxy      authentication; requests that are passed on
    process       server processes, their listener, their supervisor

One process serves on one thread. It is a worker like any other: it has no watch of its own.
"""
