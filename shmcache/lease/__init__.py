"""Leases (coordination.k8s.io): leaders, and members of a group of machines.

    settings ▸ election ▸ requests ▸ elector ▸ leader
                  └── members ▸ share ▸ ...        slots of keys over several machines

election.py and sharing.py decide and do no I/O; requests.py sends what they decide; elector.py
drives the first in a thread. No clock of another machine is ever compared with ours.
"""
