"""Notifications in chats, and by services that page operators."""
