"""Finding what is wrong, mending what is safe, and taking away what must go."""
