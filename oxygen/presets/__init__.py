"""Policies by name: reads presets and checkpoint cards, and loads them. Needs pydantic."""
