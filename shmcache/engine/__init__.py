"""The engine: drives source, reflector and writer for many resources, each by itself.

It receives plans (which resources to cache, and how) and a way to open a source for each; it
publishes generations in the cache, and the state of each resource for its readers. The reflector
decides about the list/watch protocol.
"""
