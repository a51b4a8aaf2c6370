"""Privileged-state controllers that prove a task solvable, and the two controls beside them."""
