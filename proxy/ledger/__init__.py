"""Where standings live. The only room with Redis."""
