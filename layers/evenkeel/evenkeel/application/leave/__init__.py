"""Leave a zone: the forecast that an operator sees before, as a document for programs."""
