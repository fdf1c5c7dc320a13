"""One client, three machine APIs as data with small readers."""
