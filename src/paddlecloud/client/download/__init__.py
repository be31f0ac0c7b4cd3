"""Downloads files of a job: in parallel, verified, resumable, never over a file of the user.

Entry points: `engine.download_job` fetches files, `listing` lists them and gives them local names,
`staging.check_download_dir` refuses a directory before anything is fetched. A download is written
into a staging directory beside the target and renamed into place at its end.
"""
