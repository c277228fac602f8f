"""The page: chats, terminals and administration in a browser."""
