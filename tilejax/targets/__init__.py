"""Target records, detection and the cost model."""
