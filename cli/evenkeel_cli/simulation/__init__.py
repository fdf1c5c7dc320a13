"""A simulation in virtual time: the deployed use cases with simulated zones, machines and a simulated autoscaler."""
