"""How actions and language are scheduled."""

import enum


class Mode(enum.StrEnum):
    """How texts are scheduled beside the actions."""

    ACTIONS = "actions"
    """No texts: the baseline for latency and actions."""
    ISOLATED = "isolated"
    """Every request has its own prefill and is decoded to its end, one by one, before the next query."""
    INTERLEAVED = "interleaved"
    """Every request has its own prefill; each query decodes a few tokens of all of them, one by one."""
    SHARED = "shared"
    """Requests share the actions' prefill and are decoded to their end in one batch before the next query."""
    UNIFIED = "unified"
    """Requests share the actions' prefill; each query decodes a few tokens of all of them in one batch."""
    PARALLEL = "parallel"
    """As isolated, but in a second process that shares the device with the actions."""


BUDGETED = (Mode.UNIFIED, Mode.INTERLEAVED)
"""A query decodes a few tokens of every unfinished text; in the other modes, whole texts."""
