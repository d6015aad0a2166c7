"""Secrets of a job on its machine: asked for, given to its commands, kept out of what is sent."""
