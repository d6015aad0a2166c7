"""Calls to Google Cloud: settings, credentials, errors, tokens."""
