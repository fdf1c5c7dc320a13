"""Leave a zone: its nodes move to the other zones of their pools by steps of converge, a few an hour."""
