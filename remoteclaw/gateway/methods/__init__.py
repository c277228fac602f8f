"""What each method does."""
