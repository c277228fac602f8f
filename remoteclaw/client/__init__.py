"""Clients of the gateway: the link that a chat, a terminal and a command ask it over."""
