"""Interruption notices of EC2 from its event queues."""
