"""LIBERO as an environment: tasks, assets, simulator core, and the Gymnasium environment on top."""
