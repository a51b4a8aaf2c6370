"""The mark of results on stand-in assets, in tables, titles, videos, pages and exports."""

STANDINS = "standins"
"""The asset source, and the recorded name, of shapes that need no download."""
_BADGE = "[stand-ins]"


def badge(*assets: str) -> str:
    """The mark of results on assets of these names; empty unless some are stand-ins."""
    return _BADGE if STANDINS in assets else ""


def badged(name: str, *assets: str) -> str:
    """What results are named after, with their mark if they have one."""
    return f"{name} {badge(*assets)}".rstrip()
