"""Hook calls on their way into the journal: the spool and its drainer. The hook itself is capture/hook.py."""
