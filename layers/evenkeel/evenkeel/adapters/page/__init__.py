"""Plans, status answers and simulations as an HTML page, for a file and for a CloudWatch widget."""
