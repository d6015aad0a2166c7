"""Inputs, outputs and small files that a job and its agent exchange on the machine."""
