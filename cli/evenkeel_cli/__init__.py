"""`evenkeel` on a laptop: no AWS needed."""
