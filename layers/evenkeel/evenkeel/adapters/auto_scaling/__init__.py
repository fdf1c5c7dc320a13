"""EC2 Auto Scaling groups, plain or behind EKS managed node groups: the flavour ``auto-scaling``."""
