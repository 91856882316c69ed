"""What passes share: walking, matching, verifying and printing jaxprs."""
