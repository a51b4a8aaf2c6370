"""Checkpoints: where they come from, whether they fit, and reading them within the memory they need."""

from oxygen.weights.loading import load
from oxygen.weights.source import fetch

__all__ = ["fetch", "load"]
