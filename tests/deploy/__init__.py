"""What ships beside the code, run against the real thing."""
