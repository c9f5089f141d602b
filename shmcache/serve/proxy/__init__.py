"""Requests that the API server answers instead of the cache."""
