"""Measurements of shmcache and of its peers, one question per file; `python -m benchmarks.run`."""
