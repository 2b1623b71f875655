"""The metadata store, the image of the cluster that every broker keeps, and where replicas are placed."""
