"""The HTML ids of the status page to which links, also those in notifications, refer."""

from urllib.parse import quote


def cluster_anchor(cluster: str) -> str:
    """Return the HTML id of a cluster's card."""
    return f"cluster-{quote(cluster, safe='')}"


def incident_anchor(cluster: str, kind: str, pool: str) -> str:
    """Return the HTML id of an incident. Its part before the first slash is the id of the cluster's card.

    The page's script opens that card if the page has no such incident any more.
    """
    return "/".join([cluster_anchor(cluster), *(quote(part, safe="") for part in (kind, pool) if part)])
