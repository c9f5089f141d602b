"""GET and LIST from the cache."""
