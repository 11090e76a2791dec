# Apicurio Registry with the Confluent API, its data in a file of its own.

registry_url() { echo "http://127.0.0.1:$(port_of "$DIR/registry" http)/apis/ccompat/v7"; }

# GET /apis/ccompat/v7/subjects, answered by 200.
registry_ready() {
  local request='GET /apis/ccompat/v7/subjects HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n'
  (
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
    printf "$request" >&3
    timeout 5 head -n 1 <&3 | grep -q ' 200 '
  )
}

registry_start() {
  local port=$1 home=$DIR/registry java app
  java=$(java_for "the schema registry" 21 99)
  app=$(fetch registry)
  port_of "$home" http "$port" >/dev/null
  port_of "$home" management >/dev/null
  if ! pid_of "$home" >/dev/null; then
    port_is_free "$home"
    launch "$home" "$java" -Xmx"${REGISTRY_HEAP:-256m}" -XX:+ExitOnOutOfMemoryError \
      -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$(port_of "$home" http)" \
      -Dquarkus.management.host=127.0.0.1 -Dquarkus.management.port="$(port_of "$home" management)" \
      -Dquarkus.log.level=WARN -Dquarkus.http.access-log.enabled=false \
      -Dapicurio.storage.sql.kind=h2 -Dapicurio.datasource.url="jdbc:h2:file:$home/data/registry" \
      -jar "$app/quarkus-run.jar"
  fi
  wait_ready "$home" registry_ready "$(port_of "$home" http)"
}
