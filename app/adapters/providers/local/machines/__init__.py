"""Machines of the local cloud: processes with accounts, ports and agents."""
