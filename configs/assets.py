"""The mark of results on stand-in assets, in tables, titles, videos, pages and exports."""

STANDINS = "standins"
"""The asset source, and the recorded name, of shapes that need no download."""
_BADGE = "[stand-ins]"


def badge(assets: str) -> str:
    """The mark of results on assets of this name; empty unless they are stand-ins."""
    return _BADGE if assets == STANDINS else ""
