"""Replies: their streams, their readers, their receipts, and what is left undelivered."""
