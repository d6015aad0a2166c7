"""Decisions of the controllers as (state, decision, effects) triples: recorded, and replayed."""
