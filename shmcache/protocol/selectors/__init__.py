"""Label and field selectors of the API server."""
