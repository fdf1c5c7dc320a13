"""Offerings: machine types in a zone, and the capacity reports about them that clusters share."""
