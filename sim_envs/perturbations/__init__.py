"""Perturbations of any suite: what they change, how much, and what stays solvable."""
