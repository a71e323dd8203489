"""The views and book-keeping of the keep: index, pages, spool, tombstones, leases, turns, compactions, leftovers, modes, caches.

`Fault.about` of each class here (what a repair may rely on); paths are absolute.

    index_unusable          path, why
    index_drift             path; journal (folder relative to the keep; "" when it is not one journal's)
    page_fence              path
    spool_waiting           path (the spool); calls, batches. Calls count from an hour on (a hook's drainer comes when the turn ends),
                            batches at once, neither while somebody holds `state/drain.lock`
    spool_unreadable        path (of the one thing)
    hook_lost               path; lines. A file outside the keep (in the user's temp folder) is not repairable
    tombstone_unfinished    session ("" when the intent can't be read); path (the intent, "" when there is none); journal (relative)
    lease_stale             path
    turn_interrupted        session, turn (id), owner, journal (relative)
    compaction_open         session, compaction (id), turn (id or ""), opened_at, closing ("owner_gone" or "timeout"), journal (relative)
    leftover                path (older than an hour: younger ones may be at work)
    open_to_others          path, mode (as it is), wanted (0o600 or 0o700)
    state_unreadable        path, why
"""
