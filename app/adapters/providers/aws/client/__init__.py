"""Calls to AWS: settings, credentials, errors, regions, roles."""
