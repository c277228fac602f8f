"""What we lean on of RQ, redis-py and Redis: an upgrade that changes it turns a test red."""
