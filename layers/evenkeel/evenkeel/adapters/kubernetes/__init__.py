"""One Kubernetes client for three machine APIs. Each API is described by data and small functions."""
