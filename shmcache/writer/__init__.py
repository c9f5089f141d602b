"""The write handle of a cache: objects, indices, state and takeover."""
