"""Issuers of OpenID Connect: their file, what they publish, and their tokens."""
