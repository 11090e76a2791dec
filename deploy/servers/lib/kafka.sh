# Apache Kafka in KRaft mode: nodes kafka-1..kafka-N, each broker and controller.

# Of the user `tidegate` behind SASL. It guards nothing.
KAFKA_PASSWORD=tidegate-test

kafka_nodes() { cat "$DIR/kafka.nodes" 2>/dev/null; }

# kafka_bootstrap [clients|tls|sasl]: the addresses of one kind of listener.
kafka_bootstrap() {
  local n list=
  for ((n = 1; n <= $(kafka_nodes); n++)); do list+=",127.0.0.1:$(port_of "$DIR/kafka-$n" "${1:-clients}")"; done
  echo "${list#,}"
}

kafka_configure() {
  local n home clients tls sasl voters= nodes
  nodes=$(kafka_nodes)
  for ((n = 1; n <= nodes; n++)); do voters+=",$n@127.0.0.1:$(port_of "$DIR/kafka-$n" controller)"; done
  for ((n = 1; n <= nodes; n++)); do
    home=$DIR/kafka-$n
    clients=PLAINTEXT://127.0.0.1:$(port_of "$home" clients)
    tls=TLS://127.0.0.1:$(port_of "$home" tls)
    sasl=SASL://127.0.0.1:$(port_of "$home" sasl)
    cat >"$home/server.properties" <<P
process.roles=broker,controller
node.id=$n
controller.quorum.voters=${voters#,}
controller.listener.names=CONTROLLER
listeners=$clients,$tls,$sasl,CONTROLLER://127.0.0.1:$(port_of "$home" controller)
advertised.listeners=$clients,$tls,$sasl
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location=$DIR/tls/server-both.pem
ssl.truststore.type=PEM
ssl.truststore.location=$DIR/tls/ca.pem
listener.name.sasl.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_tidegate="$KAFKA_PASSWORD";
log.dirs=$home/data
auto.create.topics.enable=false
default.replication.factor=$nodes
min.insync.replicas=$((nodes / 2 + 1))
offsets.topic.replication.factor=$nodes
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=$nodes
transaction.state.log.min.isr=$((nodes / 2 + 1))
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=$nodes
share.coordinator.state.topic.min.isr=$((nodes / 2 + 1))
# the greatest record that Tidegate writes is a dead letter
message.max.bytes=12582912
replica.fetch.max.bytes=12582912
# groups form, lose a member and notice a dead one quickly
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=1000
# a killed broker is let in again when its old session is over
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
# retention can be watched at work
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=1000
# many small topics on a small machine
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=8388608
num.network.threads=2
num.io.threads=4
background.threads=2
${KAFKA_SETTINGS:-}
P
  done
}

# A metadata answer that lists COUNT brokers: one is listed only once it may serve.
kafka_ready() {
  local answer
  answer=$(ask "$1" 0000000e0003000100000001ffff00000000 12) && [ $((16#${answer:16:8})) -ge "$2" ]
}

kafka_start() {
  local nodes=$1 port=$2 only=$3 n home java jars listener started=() running=0
  [ -s "$DIR/kafka.nodes" ] || echo "${nodes:-1}" >"$DIR/kafka.nodes"
  [ -z "$nodes" ] || [ "$nodes" = "$(kafka_nodes)" ] || die "$DIR already holds Kafka with $(kafka_nodes) node(s), not $nodes"
  nodes=$(kafka_nodes)
  java=$(java_for Kafka 17 99)
  jars=$(fetch kafka)
  [ -s "$DIR/kafka.cluster" ] || head -c 16 /dev/urandom | base64 | tr '+/' 'xy' | cut -c 1-22 >"$DIR/kafka.cluster"
  for ((n = 1; n <= nodes; n++)); do
    home=$DIR/kafka-$n
    port_of "$home" clients "${port:+$((port + n - 1))}" >/dev/null
    for listener in controller tls sasl; do port_of "$home" "$listener" >/dev/null; done
  done
  certificates
  kafka_configure
  for ((n = 1; n <= nodes; n++)); do
    home=$DIR/kafka-$n
    if [ -z "$only" ] || [ "$only" = "kafka-$n" ]; then
      started+=("$home")
      if ! pid_of "$home" >/dev/null; then
        port_is_free "$home"
        "$java" -Xmx128m -cp "$jars/libs/*" -Dlog4j2.configurationFile="file:$HERE/kafka/log4j2.properties" \
          kafka.tools.StorageTool format --ignore-formatted -t "$(cat "$DIR/kafka.cluster")" -c "$home/server.properties" \
          --add-scram "SCRAM-SHA-512=[name=tidegate,password=$KAFKA_PASSWORD]" \
          >>"$home/log" 2>&1 </dev/null || { tail -n 20 "$home/log" >&2; die "could not format the storage of kafka-$n"; }
        launch "$home" "$java" -Xmx"${KAFKA_HEAP:-512m}" -XX:+ExitOnOutOfMemoryError -cp "$jars/libs/*" \
          -Dlog4j2.configurationFile="file:$HERE/kafka/log4j2.properties" kafka.Kafka "$home/server.properties"
      fi
    fi
    if pid_of "$home" >/dev/null; then running=$((running + 1)); fi
  done
  for home in "${started[@]}"; do wait_ready "$home" kafka_ready "$(port_of "$home" clients)" "$running"; done
}

# kafka_tool NAME ARGS...: one of Kafka's own command line tools against this cluster.
kafka_tool() {
  local class
  case $1 in
    topics) class=org.apache.kafka.tools.TopicCommand ;;
    configs) class=kafka.admin.ConfigCommand ;;
    groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
    delete-records) class=org.apache.kafka.tools.DeleteRecordsCommand ;;
    consume) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
    produce) class=org.apache.kafka.tools.ConsoleProducer ;;
    *) die "no Kafka tool called $1: topics, configs, groups, delete-records, consume or produce" ;;
  esac
  shift
  "$(java_for Kafka 17 99)" -Xmx256m -cp "$(fetch kafka)/libs/*" -Dlog4j2.configurationFile="file:$HERE/kafka/log4j2.properties" \
    "$class" --bootstrap-server "$(kafka_bootstrap)" "$@"
}
