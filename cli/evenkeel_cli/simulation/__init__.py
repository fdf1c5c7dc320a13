"""A simulation in virtual time. It runs the deployed use cases with simulated zones, machines and autoscaler."""
