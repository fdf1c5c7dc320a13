"""The nouns: what is observed, remembered, wished and planned. Everything else of the domain is about them."""
