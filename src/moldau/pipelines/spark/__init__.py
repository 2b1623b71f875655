"""Spark itself: a Java, the connector's jars, a session."""
