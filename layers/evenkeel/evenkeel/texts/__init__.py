"""The texts for people, made from the typed values of the domain."""
