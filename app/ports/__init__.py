"""Protocols the rules act through; no implementation lives here."""
