"""Moldau and Apache Kafka under the same load, side by side. `make bench` writes docs/benchmarks.md."""
