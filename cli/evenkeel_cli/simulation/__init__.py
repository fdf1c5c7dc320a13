"""A simulation in virtual time: the deployed use cases against zones, machines and an autoscaler that are numbers."""
