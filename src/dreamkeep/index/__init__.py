"""A fast view of the journal. Disposable: delete it, and the next question rebuilds it."""
