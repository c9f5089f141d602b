"""The work queue that a controller's processes share, and the feeder that fills it."""
