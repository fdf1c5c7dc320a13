"""Offerings: machine types of a zone that many clusters buy."""
