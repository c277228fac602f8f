"""Budgets at work: what is spent of them, the requests to owners, and the words about both."""
