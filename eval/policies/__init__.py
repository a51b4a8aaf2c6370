"""Policies of rollouts: engine, Python classes, servers, scripted."""
