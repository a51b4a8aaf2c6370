"""Worlds: simulators as environments, their tasks, assets and scripted experts. Knows no policy model."""
