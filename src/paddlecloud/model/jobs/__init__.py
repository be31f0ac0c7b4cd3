"""What a job is: parameters, specification, states, gangs, its environment, retries.

Pure values and rules. `states` is the one table of states; `params` the one table of parameters.
"""
