"""Rented machines and clouds: launch, settle, reconcile, interruptions, release."""
