"""Policy servers: the WebSocket protocols of openpi, RoboArena and vla-evaluation-harness."""
