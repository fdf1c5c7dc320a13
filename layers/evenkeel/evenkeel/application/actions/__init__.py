"""What an operator can ask for by hand: one module for each action, and the table of them all."""
