"""Telegram: bots through the Bot API."""
