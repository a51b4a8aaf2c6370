"""LIBERO's account of an episode: phases, objects, facts, read from the simulator."""
