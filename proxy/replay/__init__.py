"""Recorded and scripted sessions on the same spine as live traffic. Never serves traffic."""
