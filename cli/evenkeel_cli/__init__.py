"""The command line `evenkeel`. Plans of files or of a kubeconfig, and simulations, need no AWS account."""

import gc

gc.set_threshold(100_000, 10, 50)  # the usual 700 costs a tenth of a plan: imports make many objects that stay
