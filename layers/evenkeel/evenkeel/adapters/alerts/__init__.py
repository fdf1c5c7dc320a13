"""Sends notifications to chats, and to services that page the person on call."""
