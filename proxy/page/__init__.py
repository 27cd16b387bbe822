"""The page of those who run the proxy: conversations as they live, and what was found in them."""
