"""The child processes of `shmcache bench`."""
