"""Handlers: registrations, their delivery, and the threads or loops that run them."""
