"""Fetches files of a job: in parallel, verified, resumable, never over a person's own file.

Entry point: `engine.download`. A download is written into a staging directory with a journal and
renamed into place at its end. Listing a job's files without fetching them is `listing`.
"""
