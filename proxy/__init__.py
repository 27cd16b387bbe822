"""Lethe: a reverse proxy that forgets an agent's old reasoning and keeps the prompt cache warm."""

__version__ = "0.1.0"
