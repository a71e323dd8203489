"""A session as people and models read it: its digest, and whose words stand in it. Pure."""
