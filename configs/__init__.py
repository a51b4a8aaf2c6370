"""Presets as data (YAML), the schema that checks them, and what all command lines share."""
