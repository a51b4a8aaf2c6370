"""Policies as the rollout sees them."""
