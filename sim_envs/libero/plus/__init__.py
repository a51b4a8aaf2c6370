"""LIBERO-plus (arXiv 2510.13626): LIBERO's tasks, perturbed in seven ways, beside LIBERO itself."""
