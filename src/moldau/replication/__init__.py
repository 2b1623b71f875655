"""One partition as its leader and followers see it."""
