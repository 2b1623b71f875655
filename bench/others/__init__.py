"""The windowed count of bench.pipelines in other people's Python frameworks; run by their own environment."""
