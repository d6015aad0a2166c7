"""A share for people, as whole percent. Not here: the command line's own signs (`app.cli`)."""


def percent(share: float) -> str:
    """0.3 → "30 %"."""
    return f"{share:.0%}".replace("%", " %")
