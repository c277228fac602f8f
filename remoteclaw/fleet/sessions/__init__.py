"""Sessions: their state, their conversations' records, their tasks and their usage."""
