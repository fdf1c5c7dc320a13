"""A page to look at: plans, status answers and simulations as HTML, for a file and for a CloudWatch widget."""
