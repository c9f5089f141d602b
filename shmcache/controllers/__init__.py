"""Controllers: reconcile functions run by several processes, each key with one of them at a time.

    declaring ▸ sources ▸ feeder ▸ queue ▸ worker ▸ reconciling ▸ outcome ▸ queue
                                              └── board: what all processes of a controller share

Nothing here writes to Kubernetes, and nothing elects a leader: that is one machine's work queue.
To run a controller on several machines, elect one of them, or give each a shard.
"""
