"""The reflector without I/O: which request comes next, and what each answer means."""
