"""What is remembered: insights, notes, tasks, and the page. Pure: folds and renderings, no disk, no clock."""
