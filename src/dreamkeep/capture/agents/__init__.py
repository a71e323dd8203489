"""Where each agent keeps its sessions. One small file for each agent; what is in them is read by `session/formats/`."""
