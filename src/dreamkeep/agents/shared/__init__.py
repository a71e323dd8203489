"""What several agents' folders need."""
