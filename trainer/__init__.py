"""Everything that runs on a rented machine: the agent, the training loop and the shapes they share.

Installs and imports without the control plane. Nothing is imported here, so that the agent never
pays for loading PyTorch.
"""
