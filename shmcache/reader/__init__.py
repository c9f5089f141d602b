"""Reading a cache: attachment, look-ups, lists, snapshots, deltas, waiting."""
