"""The serving engine: scheduler, requests, KV pool, decoding, compiled programs."""
