"""Places that run jobs. A backend makes agents exist and cease; the agents do the rest."""
