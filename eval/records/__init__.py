"""Files of a run: schema, reader, run folders, provenance."""
