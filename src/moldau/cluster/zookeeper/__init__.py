"""The metadata store of several machines: a ZooKeeper ensemble, through kazoo."""
