"""Records and pictures: what a person reads."""
