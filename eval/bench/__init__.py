"""The engine's benchmark: the same work in every mode, no simulator. Needs only `oxygen`'s packages."""
