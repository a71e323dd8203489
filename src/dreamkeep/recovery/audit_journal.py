"""The journals: what is wrong with their bytes. Reads, and opens only what does not look as it did when it was indexed.

`Fault.about` of each class here (what a repair may rely on). All have `journal` (folder relative to the keep) and `session` ("" for
the keep's own, and where none can be told).

    journal_tail            part, at, size, whole (only the line feed is missing)
    journal_damage          kind "damage"; part, at, size, missing [[first, last], …], times, recorded, mend
    journal_gap             kind "gap" or "suspect" (lost with a failed sync, never acknowledged); the same keys
    journal_missing_part    kind "missing_part"; the same keys; part: the first that is missing; known_by "journal" or "index" (the
                            last parts are gone, and only the index remembers them: nothing to mend in the journal then, mend is None)
    journal_duplicate       kind "duplicate"; the same keys
    journal_disorder        kind "disorder"; the same keys
    journal_link            kind "link"; the same keys
    journal_reused          kind "reused"; the same keys (part, at, size: where the frame lies that is not read)
    journal_chunks          kind "chunks"; seq (of the frame that binds the pieces); part 0, at = seq; mend
    journal_strange         kind "strange"; seq; part 0, at = seq; mend
    journal_unreadable      why
    journal_twice           part
    journal_differs         part

`mend`: {"kind", "part", "at", "size"}, to be put as it is into the body of a frame `journal.mended` of that journal
({"faults": [mend, …], "how": "accepted" | "noted" | "recaptured" | "readded"}): then the fault is no longer reported.
"""
