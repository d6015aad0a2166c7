"""Named worlds: which jobs come, what goes wrong with them, and what must have become of them.

A scenario is small and about one thing; the sweep over seeds (`run_seed`) mixes everything. Not
here: what a fault does (`faults`).
"""
