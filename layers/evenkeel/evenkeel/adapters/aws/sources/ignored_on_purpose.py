"""Events that look like failures but are not. The template has no rule for them, but a user's rule may match them."""

from evenkeel.adapters.aws.signals import Parser, Rows, ignored


def _on_purpose(kind: str, reason: str) -> Parser:
    return lambda event: ignored(kind, f"event: {event['detail-type']} is ignored on purpose: {reason}")


_SPOT = _on_purpose("spot", "it takes a running node back; a replacement that fails is reported by its own event")
_PRACTICE = _on_purpose("practice run", "nothing is wrong with the zone, and machines can be had there")

ROWS: Rows = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _SPOT,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _SPOT,
    **{
        ("aws.arc-zonal-shift", f"Practice Run {end}"): _PRACTICE
        for end in ("Started", "Succeeded", "Interrupted", "Failed")
    },
}
