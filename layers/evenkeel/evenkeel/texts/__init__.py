"""The texts for people: templates in JSON files, one file for each capability, and the modules that fill them in."""
