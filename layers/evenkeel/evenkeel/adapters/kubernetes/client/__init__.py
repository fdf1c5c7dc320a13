"""The Kubernetes API over HTTPS: connections, pages, retries, lists."""
