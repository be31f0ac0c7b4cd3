"""Who runs where next: from a view of the world to decisions. No input or output, no clock."""
