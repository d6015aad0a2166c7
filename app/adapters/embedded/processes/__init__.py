"""Processes that this machine runs for Lowtide: started, watched, stopped, recorded."""
