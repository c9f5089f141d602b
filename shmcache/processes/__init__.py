"""Child processes: started, supervised, drained, never orphaned."""
