"""LIBERO's part of the ground truth: items, names and goals."""
