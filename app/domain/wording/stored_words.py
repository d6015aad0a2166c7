"""Stored words as people read them, where no sentence of their own says it better."""


def stored_words(name: str) -> str:
    """ "gang_wait" → "gang wait", "on_demand" → "on-demand", "public_ip" → "public IP"."""
    told = name.replace("_", " ").replace("on demand", "on-demand")
    return told.replace("public ip", "public IP")
