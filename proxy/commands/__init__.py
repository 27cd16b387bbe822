"""The commands of the command line that are more than one call, a file each."""
