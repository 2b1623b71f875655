"""The broker's properties, as a table: Kafka's names, types and defaults (4.3 and the ZooKeeper era), and our own.

A line reads `name TYPE default mode rule | what it does`, in the form of `config.read_table`. Mode says what may
change while the broker runs (KIP-226): `-` nothing, `b` per broker, `c` for the whole cluster too.
Not here, and so warned of when set: what only KRaft, tiered storage, share groups, Kerberos or the JVM need.
"""

from moldau.core.config import UpdateMode, read_table

_IDENTITY_AND_LISTENERS = """
broker.id INT -1 - -1.. | This broker's number in the cluster; -1 takes the next free one.
node.id INT ~ - 0.. | KRaft's name for broker.id; used when broker.id is not set.
process.roles LIST "" - * | KRaft's roles; its properties files start here if `broker` is among them.
broker.id.generation.enable BOOLEAN true - * | Whether a broker without broker.id may take a free number.
reserved.broker.max.id INT 1000 - 0.. | Numbers up to this one are never given out automatically.
broker.rack STRING ~ - * | Where this broker stands; replicas are spread over racks.
listeners LIST PLAINTEXT://:9092 b * | Addresses to listen on, each NAME://host:port; no host is all interfaces.
advertised.listeners LIST ~ - * | Addresses that clients are told to connect to; those of `listeners` if not set.
listener.security.protocol.map STRING \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT b * \
| Which security protocol each listener name speaks.
inter.broker.listener.name STRING ~ - * | The listener on which brokers talk to each other.
security.inter.broker.protocol STRING PLAINTEXT - PLAINTEXT/SSL/SASL_PLAINTEXT/SASL_SSL \
| Security protocol between brokers, where no inter.broker.listener.name is set.
controller.listener.names LIST "" - * | Listeners only KRaft controllers use; they are not opened here.
control.plane.listener.name STRING ~ - * | The listener that carries the controller's requests.
host.name STRING "" - * | Host to listen on, from the time before `listeners`.
port INT 9092 - 0..65535 | Port to listen on, from the time before `listeners`.
advertised.host.name STRING ~ - * | Host that clients are told, from the time before `advertised.listeners`.
advertised.port INT ~ - 0..65535 | Port that clients are told, from the time before `advertised.listeners`.
"""

_NETWORK = """
num.network.threads INT 3 c 1.. | Accepted for compatibility: one event loop serves all connections.
num.io.threads INT 8 c 1.. | Accepted for compatibility: one event loop serves all requests.
background.threads INT 10 c 1.. | Accepted for compatibility: threads for work off the request path.
queued.max.requests INT 500 - 1.. | Requests that may wait before reading from the network stops.
queued.max.request.bytes LONG -1 - * | Bytes of requests that may wait before reading stops; -1 is no limit.
request.timeout.ms INT 30000 - 0.. | How long a request between brokers may take.
socket.send.buffer.bytes INT 102400 - -1.. | SO_SNDBUF of a client's socket; -1 keeps the system's.
socket.receive.buffer.bytes INT 102400 - -1.. | SO_RCVBUF of a client's socket; -1 keeps the system's.
socket.request.max.bytes INT 104857600 - 1.. | Largest request that is read; a larger one closes the connection.
socket.listen.backlog.size INT 50 - 1.. | Connections that may wait to be accepted.
socket.connection.setup.timeout.ms LONG 10000 - 0.. | First time limit for connecting to a broker.
socket.connection.setup.timeout.max.ms LONG 30000 - 0.. | Last time limit for connecting to a broker.
connections.max.idle.ms LONG 600000 - * | A connection silent for this long is closed; negative means never.
connection.failed.authentication.delay.ms INT 100 - 0.. | How long a failed authentication waits for its answer.
connections.max.reauth.ms LONG 0 - * | How long a SASL login lasts before it must be renewed; 0 is for ever.
max.connections INT 2147483647 c 0.. | Connections that the broker holds at most.
max.connections.per.ip INT 2147483647 c 0.. | Connections held at most from one address.
max.connections.per.ip.overrides STRING "" c * | Limits for single addresses: host:number pairs between commas.
max.connection.creation.rate INT 2147483647 c 0.. | Connections accepted at most per second.
max.incremental.fetch.session.cache.slots INT 1000 - 0.. | Incremental fetch sessions that are kept (KIP-227).
max.request.partition.size.limit INT 2000 - 1.. | Partitions that one DescribeTopicPartitions answer holds at most.
fetch.max.bytes INT 57671680 - 1024.. | Bytes of records that one fetch answer holds at most.
fetch.purgatory.purge.interval.requests INT 1000 - * | Accepted for compatibility: waiting fetches leave no garbage.
producer.purgatory.purge.interval.requests INT 1000 - * | Accepted for compatibility: see fetch.purgatory.
delete.records.purgatory.purge.interval.requests INT 1 - * | Accepted for compatibility: see fetch.purgatory.
loop.watchdog.enable BOOLEAN true - * \
| Whether a thread watches the event loop and logs what held it for more than 50 ms. Moldau's own.
loop.watchdog.interval.ms INT 50 - 1.. | How often it looks: by so much a stall may be told too short. Moldau's own.
client.telemetry.enable BOOLEAN false - * \
| Whether clients are asked for their metrics (KIP-714), which the broker shows at /clients. Moldau's own.
telemetry.max.bytes INT 1048576 - 1.. | Largest metrics push of a client that is taken (KIP-714).
"""

_TOPICS_AND_REPLICATION = """
auto.create.topics.enable BOOLEAN true - * | Whether naming an unknown topic creates it.
delete.topic.enable BOOLEAN true - * | Whether topics can be deleted.
num.partitions INT 1 - 1.. | Partitions of a topic whose creator gives no number.
default.replication.factor INT 1 - 1.. | Replicas of a topic whose creator gives no number.
min.insync.replicas INT 1 c 1.. | In-sync replicas without which an acks=all write is refused.
unclean.leader.election.enable BOOLEAN false c * | Whether a replica that is behind may lead, losing records.
unclean.leader.election.interval.ms LONG 300000 - 1.. | How often a partition without leader is looked for.
auto.leader.rebalance.enable BOOLEAN true - * | Whether leadership returns to the preferred replicas by itself.
leader.imbalance.check.interval.seconds LONG 300 - 1.. | How often the spread of leaders is looked at.
leader.imbalance.per.broker.percentage INT 10 - 0..100 | Misplaced leaders, in percent, that start a rebalance.
controlled.shutdown.enable BOOLEAN true - * | Whether leadership is handed over before a broker stops.
controlled.shutdown.max.retries INT 3 - 0.. | How often handing over leadership is tried.
controlled.shutdown.retry.backoff.ms LONG 5000 - 0.. | Pause between two such tries.
controller.socket.timeout.ms INT 30000 - 0.. | How long a request of the controller to a broker may take.
num.replica.fetchers INT 1 c 1.. | Connections to each other broker that followers fetch over.
num.replica.alter.log.dirs.threads INT ~ - * | Moves between data directories that run at once.
replica.lag.time.max.ms LONG 30000 - 0.. | A follower that has not caught up for this long is out of sync.
replica.fetch.min.bytes INT 1 - 0.. | Bytes that a follower's fetch waits for.
replica.fetch.wait.max.ms INT 500 - 0.. | How long a follower's fetch waits for them.
replica.fetch.max.bytes INT 1048576 - 0.. | Bytes that a follower asks for per partition.
replica.fetch.response.max.bytes INT 10485760 - 0.. | Bytes that a follower asks for in all.
replica.fetch.backoff.ms INT 1000 - 0.. | Pause of a follower after a failed fetch.
replica.high.watermark.checkpoint.interval.ms LONG 5000 - 1.. | How often high watermarks are written to disk.
replica.socket.timeout.ms INT 30000 - 0.. | How long a follower's request may take.
replica.socket.receive.buffer.bytes INT 65536 - -1.. | SO_RCVBUF of a follower's socket.
replica.selector.class STRING ~ - * | How the replica that a consumer reads from is chosen (KIP-392).
alter.config.policy.class.name CLASS ~ - * | A check that changes of configuration must pass.
create.topic.policy.class.name CLASS ~ - * | A check that new topics must pass.
leader.replication.throttled.rate LONG ~ b 0.. | Bytes per second that throttled replicas may be sent.
follower.replication.throttled.rate LONG ~ b 0.. | Bytes per second that throttled replicas may fetch.
replica.alter.log.dirs.io.max.bytes.per.second LONG ~ b 0.. | Bytes per second for moves between data directories.
"""

_LOG = """
log.dir LIST /tmp/kafka-logs - ! | Data directory, where log.dirs is not set.
log.dirs LIST ~ - ! | Data directories, between commas.
log.dir.failure.timeout.ms LONG 30000 - 1.. | How long a broker with a failed directory waits before it stops.
cordoned.log.dirs LIST "" b * | Data directories that take no new partitions.
log.dir.ballast.bytes LONG 16777216 - 0.. | Room that each data directory keeps for the day on which its disk is full.
log.flush.policy STRING group - group/os | When acks=all is answered: `group` after fdatasync, `os` before.
log.flush.engine STRING auto - auto/thread/aio | Who syncs: threads, or the kernel by Linux AIO (auto: many at once).
log.stray.retention.ms LONG 604800000 c -1.. | How long a log that no topic has any more is kept (-1: always).
log.segment.bytes INT 1073741824 c 14.. | Size at which a segment is closed and the next begun.
log.roll.ms LONG ~ c 1.. | Age at which a segment is closed; wins over log.roll.hours.
log.roll.hours INT 168 - 1.. | Age in hours at which a segment is closed.
log.roll.jitter.ms LONG ~ c 0.. | Largest random part taken off that age; wins over log.roll.jitter.hours.
log.roll.jitter.hours INT 0 - 0.. | Largest random part taken off that age, in hours.
log.retention.ms LONG ~ c -1.. | How long records are kept, -1 for ever; wins over minutes and hours.
log.retention.minutes INT ~ - -1.. | How long records are kept, in minutes; wins over hours.
log.retention.hours INT 168 - -1.. | How long records are kept, in hours.
log.retention.bytes LONG -1 c * | Size of a partition past which its oldest segments go; -1 is no limit.
log.retention.check.interval.ms LONG 300000 - 1.. | How often retention is applied.
log.initial.task.delay.ms LONG 30000 - 0.. | How long after the start the first of such passes waits.
log.segment.delete.delay.ms LONG 60000 c 0.. | How long a deleted segment's files stay on disk.
log.index.interval.bytes INT 4096 c 0.. | Bytes of log between two index entries.
log.index.size.max.bytes INT 10485760 c 4.. | Largest offset index; a segment is closed when it is full.
log.flush.interval.messages LONG 9223372036854775807 c 1.. | Records after which a partition is flushed to disk.
log.flush.interval.ms LONG ~ c 0.. | Time after which a partition is flushed to disk.
log.flush.scheduler.interval.ms LONG 9223372036854775807 - 0.. | How often partitions due for a flush are sought.
log.flush.offset.checkpoint.interval.ms INT 60000 - 0.. | How often recovery points are written.
log.flush.start.offset.checkpoint.interval.ms INT 60000 - 0.. | How often log start offsets are written.
log.preallocate BOOLEAN false c * | Whether the space of a new segment is reserved at once.
num.recovery.threads.per.data.dir INT 2 c 1.. | Partitions of one directory that are recovered at once.
log.cleanup.policy LIST delete c [compact/delete] | What happens to old records: delete, compact, or both.
log.cleaner.enable BOOLEAN true - * | Whether compaction runs.
log.cleaner.threads INT 1 c 0.. | Compactions that run at once.
log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 c * | Bytes per second compaction may move.
log.cleaner.dedupe.buffer.size LONG 134217728 c 1.. | Memory for the keys of one compaction.
log.cleaner.io.buffer.size INT 524288 c 0.. | Buffer that compaction reads and writes with.
log.cleaner.io.buffer.load.factor DOUBLE 0.9 c 0..1 | How full the table of keys may become.
log.cleaner.backoff.ms LONG 15000 c 0.. | Pause when there is nothing to compact.
log.cleaner.min.cleanable.ratio DOUBLE 0.5 c 0..1 | Share of new bytes from which a log is compacted.
log.cleaner.delete.retention.ms LONG 86400000 c 0.. | How long a tombstone stays after compaction.
log.cleaner.min.compaction.lag.ms LONG 0 c 0.. | Age below which records are not compacted.
log.cleaner.max.compaction.lag.ms LONG 9223372036854775807 c 1.. | Age at which records must be compacted.
message.max.bytes INT 1048588 c 0.. | Largest record batch that is taken.
compression.type STRING producer c uncompressed/zstd/lz4/snappy/gzip/producer \
| Codec on disk; `producer` keeps the sender's.
compression.gzip.level INT -1 c -1..9 | Level when the broker compresses with gzip.
compression.lz4.level INT 9 c 1..17 | Level when the broker compresses with lz4.
compression.zstd.level INT 3 c -131072..22 | Level when the broker compresses with zstd.
log.message.timestamp.type STRING CreateTime c CreateTime/LogAppendTime | Whose clock a record's timestamp is from.
log.message.timestamp.before.max.ms LONG 9223372036854775807 c 0.. | How far a timestamp may be in the past.
log.message.timestamp.after.max.ms LONG 3600000 c 0.. | How far a timestamp may be in the future.
log.message.timestamp.difference.max.ms LONG 9223372036854775807 c 0.. | Both limits at once, as before Kafka 3.6.
log.local.retention.bytes LONG -2 c -2.. | Of tiered storage, which is not served here: changes nothing.
log.local.retention.ms LONG -2 c -2.. | Of tiered storage, which is not served here: changes nothing.
log.message.downconversion.enable BOOLEAN true c * | Whether old consumers get batches converted to their format.
log.message.format.version STRING 3.0 - * | Accepted for compatibility: batches are stored in format 2.
inter.broker.protocol.version STRING 4.3 - * | Accepted for compatibility: brokers negotiate.
producer.id.expiration.ms INT 86400000 c 1.. | How long an idle producer's sequence numbers are remembered.
producer.id.expiration.check.interval.ms INT 600000 - 1.. | How often idle producers are looked for.
"""

_GROUPS_AND_TRANSACTIONS = """
group.min.session.timeout.ms INT 6000 - 1.. | Shortest session timeout a group member may ask for.
group.max.session.timeout.ms INT 1800000 - 1.. | Longest session timeout a group member may ask for.
group.max.size INT 2147483647 - 1.. | Members that one group holds at most.
group.initial.rebalance.delay.ms INT 3000 - 0.. | How long an empty group waits for more members before it starts.
group.coordinator.rebalance.protocols LIST classic,consumer,streams - [classic/consumer/share/streams] \
| Group protocols that are served.
group.coordinator.append.linger.ms INT -1 - -1.. | How long a coordinator gathers writes; -1 decides by load.
group.coordinator.threads INT 4 - 1.. | Accepted for compatibility: coordinators run on the event loop.
group.coordinator.background.threads INT 2 - 1.. | Accepted for compatibility: coordinators run on the event loop.
group.coordinator.cached.buffer.max.bytes INT 1048588 c 524288.. \
| Accepted for compatibility: buffers are not kept between writes.
group.consumer.assignors LIST uniform,range - ! | Server-side assignors, the default one first (KIP-848).
group.consumer.migration.policy STRING bidirectional - * | Which ways groups may change between protocols.
group.consumer.max.size INT 2147483647 - 1.. | Members that a group of the consumer protocol holds at most.
group.consumer.session.timeout.ms INT 45000 - 1.. | Silence after which a member of the consumer protocol is gone.
group.consumer.min.session.timeout.ms INT 45000 - 1.. | Smallest value a group may set for it.
group.consumer.max.session.timeout.ms INT 60000 - 1.. | Largest value a group may set for it.
group.consumer.heartbeat.interval.ms INT 5000 - 1.. | How often members of the consumer protocol report.
group.consumer.min.heartbeat.interval.ms INT 5000 - 1.. | Smallest value a group may set for it.
group.consumer.max.heartbeat.interval.ms INT 15000 - 1.. | Largest value a group may set for it.
group.consumer.assignment.interval.ms INT 1000 c 0.. | Shortest time between two assignments of one group.
group.consumer.min.assignment.interval.ms INT 0 - 0.. | Smallest value a group may set for it.
group.consumer.max.assignment.interval.ms INT 15000 - 0.. | Largest value a group may set for it.
group.consumer.assignor.offload.enable BOOLEAN true - * | Accepted for compatibility: assignors run on the event loop.
group.consumer.regex.refresh.interval.ms INT 600000 - 10000.. | How often regular expressions are matched anew.
offset.metadata.max.bytes INT 4096 - 0.. | Longest note that may be stored with a committed offset.
offsets.retention.minutes INT 10080 - 1.. | How long offsets of an empty group are kept.
offsets.retention.check.interval.ms LONG 600000 - 1.. | How often old offsets are looked for.
offsets.commit.timeout.ms INT 5000 - 1.. | How long a commit may wait for the replicas.
offsets.load.buffer.size INT 5242880 - 1.. | Bytes read at once when offsets are loaded.
offsets.topic.num.partitions INT 50 - 1.. | Partitions of the offsets topic.
offsets.topic.replication.factor SHORT 3 - 1.. | Replicas of the offsets topic.
offsets.topic.segment.bytes INT 104857600 - 1.. | Segment size of the offsets topic.
offsets.topic.compression.codec INT 0 - 0..4 | Codec of the offsets topic, by number.
offsets.topic.required.acks SHORT -1 - -1..1 | Acknowledgements that a commit waits for.
transaction.max.timeout.ms INT 900000 - 1.. | Longest transaction timeout a producer may ask for.
transaction.partition.verification.enable BOOLEAN true c * | Whether a write must be part of an open transaction.
transaction.two.phase.commit.enable BOOLEAN false - * | Whether transactions can be prepared (KIP-939).
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 - 1.. | How often overdue ones are ended.
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000 - 1.. | How often unused ids are looked for.
transactional.id.expiration.ms INT 604800000 - 1.. | How long an unused transactional id is remembered.
transaction.state.log.num.partitions INT 50 - 1.. | Partitions of the transaction topic.
transaction.state.log.replication.factor SHORT 3 - 1.. | Replicas of the transaction topic.
transaction.state.log.min.isr INT 2 - 1.. | In-sync replicas that the transaction topic needs.
transaction.state.log.segment.bytes INT 104857600 - 1.. | Segment size of the transaction topic.
transaction.state.log.load.buffer.size INT 5242880 - 1.. | Bytes read at once when transactions are loaded.
add.partitions.to.txn.retry.backoff.ms INT 20 - 1.. | First pause before a verification is tried again.
add.partitions.to.txn.retry.backoff.max.ms INT 100 - 0.. | Longest such pause.
"""

_METADATA_AND_METRICS = """
metadata.store.path STRING ~ - * | File of the embedded store that the brokers of one machine share.
zookeeper.connect STRING ~ - * | Hosts of the ensemble and a chroot path; without it the embedded store is used.
zookeeper.session.timeout.ms INT 18000 - 1.. | Silence after which the ensemble gives a broker up.
zookeeper.connection.timeout.ms INT ~ - 1.. | How long connecting may take; the session timeout if not set.
zookeeper.max.in.flight.requests INT 10 - 1.. | Requests that wait for the ensemble at most.
zookeeper.set.acl BOOLEAN false - * | Whether nodes are created writable for brokers only; has no effect yet.
initial.broker.registration.timeout.ms INT 60000 - 1.. | How long registering at the start may take.
broker.heartbeat.interval.ms INT 2000 - 1.. | How often a broker shows that it lives.
broker.session.timeout.ms INT 9000 - 1.. | Silence after which a broker that hangs is given up.
metrics.listener STRING 127.0.0.1:9404 - * \
| Where HTTP serves /metrics, /clients, /healthz and /readyz: host:port, or nothing. Moldau's own.
metric.reporters LIST "" c * | Accepted for compatibility: metrics are served for Prometheus.
metrics.num.samples INT 2 - 1.. | Windows that a rate is averaged over.
metrics.sample.window.ms LONG 30000 - 1.. | Length of such a window.
metrics.recording.level STRING INFO - INFO/DEBUG/TRACE | Which metrics are recorded.
client.quota.callback.class CLASS ~ - * | What decides on quotas instead of the built-in rules.
quota.producer.default LONG 9223372036854775807 - 1.. | Bytes per second that a client may produce.
quota.consumer.default LONG 9223372036854775807 - 1.. | Bytes per second that a client may fetch.
quota.window.num INT 11 - 1.. | Windows that a client's quota is measured over.
quota.window.size.seconds INT 1 - 1.. | Length of such a window.
replication.quota.window.num INT 11 - 1.. | Windows that replication quotas are measured over.
replication.quota.window.size.seconds INT 1 - 1.. | Length of such a window.
alter.log.dirs.replication.quota.window.num INT 11 - 1.. | Windows for moves between data directories.
alter.log.dirs.replication.quota.window.size.seconds INT 1 - 1.. | Length of such a window.
controller.quota.window.num INT 11 - 1.. | Windows that changes of topics are measured over.
controller.quota.window.size.seconds INT 1 - 1.. | Length of such a window.
"""

_SECURITY = """
authorizer.class.name STRING "" - * | What decides who may do what; empty lets everybody.
super.users STRING "" - * | Principals that may do everything, between semicolons.
allow.everyone.if.no.acl.found BOOLEAN false - * | Whether a resource without any ACL is open to all.
principal.builder.class CLASS ~ b * | How a connection's identity is named.
delegation.token.secret.key PASSWORD ~ - * | Key that delegation tokens are made with.
delegation.token.max.lifetime.ms LONG 604800000 - 1.. | Longest life of a delegation token.
delegation.token.expiry.time.ms LONG 86400000 - 1.. | How long a token lives without renewal.
delegation.token.expiry.check.interval.ms LONG 3600000 - 1.. | How often old tokens are looked for.
sasl.enabled.mechanisms LIST GSSAPI b * | SASL mechanisms that clients may use.
sasl.mechanism.inter.broker.protocol STRING GSSAPI b * | SASL mechanism between brokers.
sasl.jaas.config PASSWORD ~ b * | Users or credentials of a mechanism, in JAAS form.
sasl.server.callback.handler.class CLASS ~ - * | What checks credentials instead of the built-in rules.
sasl.server.max.receive.size INT 524288 - 1.. | Longest SASL message that is read.
sasl.oauthbearer.jwks.endpoint.url STRING ~ - * | Where the keys that sign tokens are published.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000 - 1.. | How often those keys are read again.
sasl.oauthbearer.expected.audience LIST "" - * | Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer STRING ~ - * | Issuer that a token must name.
sasl.oauthbearer.scope.claim.name STRING scope - * | Claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name STRING sub - * | Claim of a token that holds the user.
sasl.oauthbearer.clock.skew.seconds INT 30 - 0.. | Difference of clocks that is tolerated.
ssl.client.auth STRING none b required/requested/none | Whether clients must show a certificate.
ssl.protocol STRING TLSv1.3 b * | TLS version to prefer.
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 b * | TLS versions that may be spoken.
ssl.cipher.suites LIST "" b * | Cipher suites that may be used; empty leaves it to the library.
ssl.endpoint.identification.algorithm STRING https b * | How a server's name is checked; empty does not check it.
ssl.principal.mapping.rules STRING DEFAULT - * | How a certificate's name becomes a user.
ssl.keystore.type STRING JKS b * | Format of the key store: PEM, JKS or PKCS12.
ssl.keystore.location STRING ~ b * | File with our key and certificate.
ssl.keystore.password PASSWORD ~ b * | Password of that file.
ssl.keystore.key PASSWORD ~ b * | Our private key as PEM text.
ssl.keystore.certificate.chain PASSWORD ~ b * | Our certificates as PEM text.
ssl.key.password PASSWORD ~ b * | Password of our private key.
ssl.truststore.type STRING JKS b * | Format of the trust store: PEM, JKS or PKCS12.
ssl.truststore.location STRING ~ b * | File with the certificates we trust.
ssl.truststore.password PASSWORD ~ b * | Password of that file.
ssl.truststore.certificates PASSWORD ~ b * | Certificates we trust as PEM text.
"""

_MODES = {"-": UpdateMode.READ_ONLY, "b": UpdateMode.PER_BROKER, "c": UpdateMode.CLUSTER_WIDE}
TABLES = {
    "Identity and listeners": _IDENTITY_AND_LISTENERS,
    "Network": _NETWORK,
    "Topics and replication": _TOPICS_AND_REPLICATION,
    "The log": _LOG,
    "Groups and transactions": _GROUPS_AND_TRANSACTIONS,
    "Metadata and metrics": _METADATA_AND_METRICS,
    "Security": _SECURITY,
}
"""Tables by title, in the order of `docs/configuration.md`."""

BROKER_KEYS = {
    key.name: key._replace(mode=_MODES[mode]) for table in TABLES.values() for key, mode in read_table(table)
}
