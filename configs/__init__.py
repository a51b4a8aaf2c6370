"""Presets as data (YAML) and the schema that checks them."""
