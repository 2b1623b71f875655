"""Groups of any protocol and their offsets, as the shard of `__consumer_offsets` that holds them."""
