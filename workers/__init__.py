"""Celery programs: worker and beat."""
