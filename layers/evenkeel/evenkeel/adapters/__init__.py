"""The adapters that implement the ports: AWS, the Kubernetes API, the status page and alerts."""
