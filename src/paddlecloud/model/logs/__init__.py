"""Pure functions over log bytes: frames, merging by time, searching, tails, time index."""
