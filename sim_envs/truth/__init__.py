"""The simulator's own account of what happens: what a policy that speaks is graded against."""
