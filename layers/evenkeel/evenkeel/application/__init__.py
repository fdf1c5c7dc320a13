"""Use cases, one module each. They call ports and import no client library (Kubernetes, AWS, HTTP)."""
