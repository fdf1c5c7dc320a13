"""Offerings: an offering is a machine type in a zone. Clusters share capacity reports about offerings."""
