"""Requests to people: the records, the answers and the cards that show them."""
