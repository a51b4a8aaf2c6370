"""Policies by name: presets and checkpoint cards read and loaded. Needs pydantic, like all of `configs`."""
