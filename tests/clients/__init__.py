"""Real Kafka clients behind one small interface, and the tests that run over all of them."""
