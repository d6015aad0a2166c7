"""Shapes that cross a process: agent and control plane, agent and object store.

Standard library only; the control plane may import this package, and nothing else of `trainer`.
"""
