"""Ground truth for language, read from the simulator; texts of a policy are graded against it."""
