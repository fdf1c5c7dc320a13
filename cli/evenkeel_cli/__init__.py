"""The command line `evenkeel`. Planning and simulation need no AWS."""
