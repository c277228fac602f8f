"""Telegram."""
