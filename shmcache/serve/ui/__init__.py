"""The page of `shmcache ui`: a cache watched live, in a browser."""
