"""For every suite: one way to run properties, the same on every machine; what AWS's services are like is read once."""

from functools import cache

import botocore.session
from hypothesis import HealthCheck, settings

# Derandomized, so that a run is either green or red for a reason that stands in the change.
# `pytest tests/property --hypothesis-profile=explore` looks further, with new examples each time.
settings.register_profile("stable", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("stable")

# Every session of botocore reads the models of its services anew, which is nine tenths of what a client costs. The
# loader keeps what it has read, and nobody changes that: a session's own clients share it as well.
botocore.session.create_loader = cache(botocore.session.create_loader)
