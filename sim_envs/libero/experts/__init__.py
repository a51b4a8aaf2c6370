"""Scripted experts for LIBERO's tasks."""
