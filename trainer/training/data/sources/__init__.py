"""Where samples come from: folders, arrays, shards, buckets, the built-in set."""
