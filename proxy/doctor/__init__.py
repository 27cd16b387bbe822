"""Finds out by asking what an upstream allows and does with reasoning and its prompt cache."""
