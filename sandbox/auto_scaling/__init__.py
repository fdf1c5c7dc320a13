"""A simulated EC2 Auto Scaling API, with EKS managed node groups on top, for tests, simulations and the demo."""
