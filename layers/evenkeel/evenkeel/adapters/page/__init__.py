"""Shows plans, status answers and simulations as an HTML page, in a file or in a CloudWatch widget."""
