"""HTTP/1.1 and WebSocket on one thread: bytes to requests, answers to bytes."""
