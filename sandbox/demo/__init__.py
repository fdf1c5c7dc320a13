"""`make demo` and `make demo-all`: the deployed functions on simulated clusters and AWS endpoints, in fast motion."""
