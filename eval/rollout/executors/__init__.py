"""Plays the episodes of an evaluation: here, or in worker processes."""
