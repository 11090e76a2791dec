# Apache Cassandra, one node. It needs Java 17: later ones have no security manager, which 5.0 still wants.

cassandra_configure() {
  local home=$1
  mkdir -p "$home/conf"
  cp "$HERE/cassandra/logback.xml" "$home/conf/logback.xml"
  cat >"$home/conf/cassandra.yaml" <<Y
cluster_name: tidegate-test
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
start_native_transport: true
native_transport_port: $(port_of "$home" cql)
native_transport_port_ssl: $(port_of "$home" tls)
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: ${CASSANDRA_CLIENT_AUTH:-false}
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: $DIR/tls/server-both.pem
  truststore: $DIR/tls/ca.pem
storage_port: $(port_of "$home" storage)
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:$(port_of "$home" storage)"
data_file_directories: ["$home/data/data"]
commitlog_directory: $home/data/commitlog
saved_caches_directory: $home/data/saved_caches
hints_directory: $home/data/hints
cdc_raw_directory: $home/data/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
memtable_heap_space: 128MiB
auto_snapshot: false
# a machine that compiles meanwhile is slow, not broken
read_request_timeout: 10s
range_request_timeout: 20s
write_request_timeout: 10s
cas_contention_timeout: 10s
truncate_request_timeout: 60s
request_timeout: 20s
${CASSANDRA_SETTINGS:-}
Y
}

# An OPTIONS frame, answered by SUPPORTED.
cassandra_ready() { [ "$(ask "$1" 040000000500000000 5)" = 8400000006 ]; }

cassandra_start() {
  local port=$1 home=$DIR/cassandra java jars item listener
  java=$(java_for Cassandra 17 17)
  jars=$(fetch cassandra)
  port_of "$home" cql "$port" >/dev/null
  for listener in tls storage jmx; do port_of "$home" "$listener" >/dev/null; done
  certificates
  cassandra_configure "$home"
  if ! pid_of "$home" >/dev/null; then
    port_is_free "$home"
    local open=()
    for item in java.base/{jdk.internal.misc,jdk.internal.ref,sun.nio.ch,java.lang.ref} \
      java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/{sun.rmi.registry,sun.rmi.server} \
      java.sql/java.sql jdk.unsupported/sun.misc; do
      open+=("--add-exports=$item=ALL-UNNAMED")
    done
    for item in java.base/{java.lang,java.lang.module,java.util,java.util.concurrent,java.util.concurrent.atomic} \
      java.base/{java.io,java.nio,sun.nio.ch,jdk.internal.loader,jdk.internal.ref,jdk.internal.reflect} \
      java.base/{jdk.internal.math,jdk.internal.module,jdk.internal.util.jar} jdk.management/com.sun.management.internal; do
      open+=("--add-opens=$item=ALL-UNNAMED")
    done
    launch "$home" "$java" -Xmx"${CASSANDRA_HEAP:-1g}" -XX:+ExitOnOutOfMemoryError "${open[@]}" \
      -javaagent:"$(echo "$jars"/libs/jamm-*.jar)" \
      -Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true \
      -Dcassandra.config="file://$home/conf/cassandra.yaml" -Dcassandra.storagedir="$home/data" \
      -Dcassandra.jmx.local.port="$(port_of "$home" jmx)" \
      -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=0 \
      -cp "$home/conf:$jars/libs/*" org.apache.cassandra.service.CassandraDaemon
  fi
  wait_ready "$home" cassandra_ready "$(port_of "$home" cql)"
}
