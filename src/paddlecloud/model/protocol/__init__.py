"""What travels between our programs: the request signature and the frames of reports."""
