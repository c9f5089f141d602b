"""Figures of programs that adopt the cache; `make adopters` installs and runs them."""
