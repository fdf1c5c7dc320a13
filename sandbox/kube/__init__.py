"""The Kubernetes half of the sandbox: an API server, machine controllers, an autoscaler, a world of three clusters."""
