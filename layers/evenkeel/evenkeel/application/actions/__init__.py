"""Operator actions: a module for each action or a few related ones, and the table of all actions."""
