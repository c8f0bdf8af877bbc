#!/bin/sh
# A job on two hosts, which are network namespaces of this one with a cable between them: the weights of one process.
# usage: hosts.sh EPL FOLDER
. "$(dirname "$0")/begin.sh"
a=epl-a-$$ b=epl-b-$$
command -v ip >/dev/null || { echo "SKIP: the program ip is not installed"; exit 0; }
ip netns add $a 2>why || { echo "SKIP: no network namespaces here: $(cat why)"; exit 0; }
trap 'ip netns del $a; ip netns del $b 2>/dev/null' EXIT
# The other namespace, and the cable.
connect() {
  ip netns add $b && ip -n $a link add eth0 type veth peer name eth0 netns $b &&
    ip -n $a addr add 10.77.0.1/24 dev eth0 && ip -n $b addr add 10.77.0.2/24 dev eth0 &&
    for one in $a $b; do ip -n $one link set eth0 up && ip -n $one link set lo up || return 1; done
}
if ! connect 2>why; then
  echo "SKIP: no cable between network namespaces here: $(cat why)"
  exit 0
fi
small_job
train="$epl train model.onnx --text book.txt --batch 8 --steps 6 --seed 3 --json"
$train --out alone >alone.json || exit 1
hosts="--hosts 10.77.0.1:2,10.77.0.2:2"

# The first host makes the secret and tells what to type on the other, where it is then typed.
ip netns exec $a "$epl" launch $hosts --host 10.77.0.1 --secret-file job.secret -- $train --out both >both.json 2>told &
first=$!
for i in $(seq 300); do
  grep -q '^epl: on 10.77.0.2' told && break
  sleep 0.1
done
holds "the secret is private" test "$(stat -c %a job.secret)" = 600
words=$(sed -n 's/^epl: on 10.77.0.2, with the same secret: epl //p' told)
holds "the other host is told what to do" test -n "$words"
eval "ip netns exec $b \"$epl\" $words" >other.json 2>other.err || { cat other.err; failed=1; }
wait $first || { cat told; failed=1; }
holds "two hosts have the weights of one process" test "$(hash_of both.json)" = "$(hash_of alone.json)"
holds "there is a hash" test -n "$(hash_of both.json)"
holds "the other host prints nothing" test ! -s other.json

# Who has another secret is told so, and one who says nothing keeps nobody out.
ip netns exec $a "$epl" launch $hosts --host 10.77.0.1 --secret-file job.secret -- $train --out again >again.json 2>told &
first=$!
echo another >other.secret
for i in $(seq 300); do
  grep -q '^epl: on 10.77.0.2' told && break
  sleep 0.1
done
ip netns exec $b "$epl" launch $hosts --host 10.77.0.2 --secret-file other.secret -- $train --out never >/dev/null 2>other.err
holds "another secret is refused" test $? != 0
holds "by its name" grep -q 'store 10.77.0.1:29511: the two ends do not have the same secret' other.err
ip netns exec $b "$epl" launch $hosts --host 10.77.0.2 --secret-file job.secret -- $train --out again >other.json 2>other.err ||
  { cat other.err; failed=1; }
wait $first || { cat told; failed=1; }
holds "the others wait for the right one" test "$(hash_of again.json)" = "$(hash_of alone.json)"
[ $failed = 0 ] && echo "hosts work"
exit $failed
