"""Relief: raise the maximum of a Gardener Shoot while zones are dead."""
