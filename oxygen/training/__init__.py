"""Training of π0.5-shaped policies, from demonstrations to checkpoints that `create_vector_policy` serves."""
