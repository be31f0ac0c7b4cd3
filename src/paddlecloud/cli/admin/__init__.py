"""Commands of admins, one file per noun."""
