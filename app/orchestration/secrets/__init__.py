"""Secrets of projects: who sets, rotates and removes them, and under which key they are."""
