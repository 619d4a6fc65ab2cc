"""Pages of a server of one's own: the same reports, with a way from one to the other."""
