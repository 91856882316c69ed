"""One pass a file; `pipeline` lists them in order."""
