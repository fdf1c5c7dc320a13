"""Names of ours on Kubernetes objects. docs/annotations.md says what each means."""

OWN = "evenkeel.dev/"
DECISION = OWN + "decision"
ADOPTED = OWN + "adopted-bounds"
MOVE = OWN + "move"
PROVISION_TIME = OWN + "provision-time"
POOL_LABEL = OWN + "pool"
# All names of ours that anybody may write on a scalable; another one is a slip of somebody's pen.
OWN_ANNOTATIONS = (
    *(OWN + name for name in ("pool-min", "pool-max", "strategy", "on-failure", "weight", "zone-min")),
    *(OWN + name for name in ("zone-max", "fence", "level", "dry-run", "max-step")),
    *(DECISION, ADOPTED, MOVE, PROVISION_TIME),
)
OWN_LABELS = (POOL_LABEL,)
