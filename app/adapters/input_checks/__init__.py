"""Uploaded job specs and archives are read here, in processes that are killed at their limits."""
