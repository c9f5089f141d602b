"""The processes of `shmcache demo`."""
