"""What a run leaves on disk: schema, reader, run folders, provenance."""
