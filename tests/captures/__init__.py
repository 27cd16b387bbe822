"""Requests of real agents, replayed in order."""
