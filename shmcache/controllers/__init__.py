"""Controllers: reconcile functions run by several processes, each key with one of them at a time.

    declaring ▸ sources ▸ feeder ▸ queue ▸ worker ▸ reconciling ▸ outcome ▸ queue
                                              └── board: what all processes of a controller share

Nothing here writes to Kubernetes, except to Leases: the queue is one machine's, and where several
machines run a controller, coordinator ▸ tenure ▸ worker decides which keys are whose.
"""
