"""The engine's benchmark: the same work in every mode, no simulator. Needs what `oxygen` needs, no more."""
