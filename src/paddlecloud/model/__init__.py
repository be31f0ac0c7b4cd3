"""What a job is and what may happen to it: values and rules, no input or output, no clock."""
