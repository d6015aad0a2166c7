"""Callbacks that give the hooks (`trainer.hooks`) to a framework's own training loop.

One file a framework, importing that framework alone; a rented machine has them as
``lowtide_callbacks``. Not here: what a checkpoint is (`hooks`), or examples (docs/examples).
"""
