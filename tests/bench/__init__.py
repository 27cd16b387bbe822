"""Direct, nginx and Lethe side by side over loopback: `python -m tests.bench`."""
