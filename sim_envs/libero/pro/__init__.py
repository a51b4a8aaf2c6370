"""LIBERO-PRO (arXiv 2510.03827): LIBERO's tasks with other words, places, objects or goals."""
