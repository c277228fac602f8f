"""Authentication: tokens, and the principals that they stand for."""
