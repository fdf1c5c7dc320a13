"""The nouns that several capabilities share: observations, stored state, settings and plans."""
