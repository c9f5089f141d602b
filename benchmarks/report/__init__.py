"""Tables and pictures of the results."""
