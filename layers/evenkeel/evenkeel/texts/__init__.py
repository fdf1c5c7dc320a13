"""The texts for people: templates in data files, one for each capability, and the modules that fill them in."""
