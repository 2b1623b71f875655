"""The metadata stores, the image of the cluster that every broker keeps, the controller, and the placement of
replicas."""
