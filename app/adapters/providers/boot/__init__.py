"""The boot script's parts, as shipped files: one for each cloud, and what both share."""
