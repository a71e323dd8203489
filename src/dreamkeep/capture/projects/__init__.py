"""Which project a folder belongs to, and which projects are one."""
