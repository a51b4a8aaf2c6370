"""Presets (YAML) and their schemas, and code shared by all command lines."""
