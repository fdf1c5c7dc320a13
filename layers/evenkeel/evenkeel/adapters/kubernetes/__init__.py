"""One Kubernetes client for three machine APIs. Data and small functions describe each machine API."""
