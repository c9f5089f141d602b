"""Where a cache's shared memory is: names, files, maps, limits."""
