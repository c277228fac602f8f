"""The page: the gateway in a browser."""
