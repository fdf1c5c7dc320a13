"""Where people are told: chats, and services that page them."""
