"""Training of any π0.5-shaped policy: demonstrations in, a checkpoint that `create_policy` serves out."""
