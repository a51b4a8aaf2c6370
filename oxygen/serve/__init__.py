"""Policies over the network: openpi's WebSocket protocol."""
