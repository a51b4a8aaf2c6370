"""Checkpoints: downloading, checking, and reading them tensor by tensor."""

from oxygen.weights.loading import load
from oxygen.weights.source import fetch

__all__ = ["fetch", "load"]
