"""Exported models: formats, signatures, model card."""
