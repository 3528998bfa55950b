"""What a measurement leaves behind: one document, and a file of series for each trial, by content hash."""
