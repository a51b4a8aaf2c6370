"""Presets (YAML) and their schemas, and code shared by all command lines."""

__version__ = "0.1.0"
