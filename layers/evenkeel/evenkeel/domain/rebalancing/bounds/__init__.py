"""What is published for each group: the strategies and the safety pass."""
