"""Use cases, one module each. They talk to ports and know no library of the outside world."""
