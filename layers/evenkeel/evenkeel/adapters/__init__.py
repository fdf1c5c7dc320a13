"""Where ports meet the world: AWS and the Kubernetes API."""
