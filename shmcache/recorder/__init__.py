"""The flight recorder: the changes of a cache on disk, bounded, and their way back."""
