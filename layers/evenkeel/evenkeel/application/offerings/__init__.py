"""Offerings: capacity reports that clusters share."""
