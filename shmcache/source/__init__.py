"""Where objects come from: the API server over HTTP, or a recording."""
