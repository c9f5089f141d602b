"""The engine: drives source, reflector and writer for many resources, each by itself.

What comes in are plans (what to cache, and how) and a way to open a source for each; what goes out
are generations in the cache, and the state of each resource for its readers. It decides nothing of
the list/watch protocol: that is the reflector's.
"""
