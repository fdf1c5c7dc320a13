"""The command line `evenkeel`. Plans of files or of a kubeconfig, and simulations, need no AWS account."""
