"""Watches: from the ring to the lines that a client receives."""
