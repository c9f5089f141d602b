"""A cache as seen from outside: observations, metrics, health."""
