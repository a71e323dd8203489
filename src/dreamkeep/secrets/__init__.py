"""Everything about secrets: how they are known, and how they are taken out of texts and bytes. Pure."""
