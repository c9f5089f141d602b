"""The commands, one file each; `python -m shmcache --help` lists them."""
