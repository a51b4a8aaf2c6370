"""LIBERO as an environment: tasks, assets, simulator core and Gymnasium registration."""
