"""etcd as a source: its gRPC API, keys and values to items."""
