"""The real machine: processes killed, a file system shut down, system calls traced, a disk that is full. Nothing is simulated."""
