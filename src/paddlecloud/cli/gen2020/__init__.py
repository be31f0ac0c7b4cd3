"""The commands of 2020 and what belongs to them, one file each."""
