"""Reads API objects in JSON into the domain's values. Pure."""
