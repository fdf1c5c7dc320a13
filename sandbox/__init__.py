"""A simulated world for the demo and the tests: Kubernetes APIs with machine controllers, and AWS endpoints."""
