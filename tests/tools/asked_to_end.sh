#!/bin/sh
# asked_to_end.sh EPL OUT: a signal is seen wherever a job is: in a step whose peer hangs, and while processes come
# together. How long they wait for each other is for the user to say.
. "$(dirname "$0")/begin.sh"
small_job
train="$epl train model.onnx --text book.txt --batch 8 --threads 1 --sample-bytes 0 --json"
now() { date +%s; }
# ends_within SECONDS PID: it ends by then; its exit code is in $got.
ends_within() {
  until=$(($(now) + $1))
  while kill -0 "$2" 2>/dev/null && [ "$(now)" -lt $until ]; do sleep 0.1; done
  if kill -0 "$2" 2>/dev/null; then
    fail "it is still there after $1 s"
    kill -KILL "$2"
  fi
  wait "$2"
  got=$?
}
# one RANK COUNT: a process that is told its place, and finds the others in the folder "meet".
one() {
  rank=$1 count=$2
  shift 2
  exec env EPL_RANK=$rank EPL_WORLD_SIZE=$count EPL_RENDEZVOUS=file://$PWD/meet EPL_SECRET=word $train "$@"
}

# Nobody else comes. The first signal ends it.
for signal in TERM INT HUP; do
  case $signal in TERM) code=143 ;; HUP) code=129 ;; INT) code=130 ;; esac
  rm -rf meet
  if [ $signal = INT ]; then   # a shell's background jobs ignore it
    timeout --preserve-status -s INT 2 env EPL_RANK=1 EPL_WORLD_SIZE=2 EPL_RENDEZVOUS=file://$PWD/meet \
      EPL_SECRET=word $train --steps 5 --out join 2>err &
  else
    (one 1 2 --steps 5 --out join) 2>err &
  fi
  child=$!
  for i in $(seq 200); do [ -f "meet/key.world%2frank%201" ] && break; sleep 0.05; done
  [ $signal = INT ] || kill -$signal $child
  ends_within 20 $child
  [ $got = $code ] || fail "SIG$signal in the join ended it with $got, not $code: $(cat err)"
done

# Nor does it wait longer than it is told to.
rm -rf meet
start=$(now)
expect 3 "rank 0 has not come" env EPL_RANK=1 EPL_WORLD_SIZE=2 EPL_RENDEZVOUS=file://$PWD/meet EPL_SECRET=word $train \
  --steps 5 --join-timeout 0.5 --out join
[ $(($(now) - start)) -lt 20 ] || fail "--join-timeout is not looked at"

# hang VICTIM WORDS...: a job of three of which process VICTIM hangs in mid-step.
hang() {
  victim=$1
  shift
  rm -rf hung hung.json
  "$epl" launch -n 3 --patience 5 -- $train --steps 100000 --checkpoint-every 1000000 --out hung "$@" >hung.json \
    2>err &
  launcher=$!
  for i in $(seq 600); do grep -q '"step":2,' hung.json && break; sleep 0.1; done
  kill -STOP "$(cat /proc/$launcher/task/$launcher/children | cut -d' ' -f$((victim + 1)))"
  sleep 1
}
# is_saved: what the others have is a checkpoint of the job, which goes on from there as if nothing had happened.
is_saved() {
  step=$(ls hung/checkpoints | sed 's/step-0*//')
  holds "a checkpoint of the job that lost process $victim" test "${step:-0}" -ge 2 || return
  $train --steps $((step + 3)) --resume hung --out hung >on.json 2>err2 || fail "$(cat err2)"
  $train --steps $((step + 3)) --out whole --overwrite >whole.json 2>err2 || fail "$(cat err2)"
  holds "the same weights as without process $victim that hung" test "$(hash_of on.json)" = "$(hash_of whole.json)"
}
# One SIGTERM is enough, though the peer says nothing: the others do not wait long for it, and one of them saves.
# What has been decided is carried out: a process that hangs in the exchange behind that, which takes a small part of a
# step, leaves nothing that could be saved.
for victim in 2 0; do
  for try in 1 2 3; do
    hang $victim
    kill -TERM $launcher
    ends_within 60 $launcher
    grep -q "which cannot be left alone" err || break
  done
  [ $got != 0 ] || fail "a job of which one hangs ended well"
  grep -q "rank $victim of world is missing: its process has not answered" err || fail "nobody says so: $(cat err)"
  is_saved
done
# And without one, the others notice in the time that is given.
hang 2 --silence-timeout 1 --join-timeout 2
ends_within 60 $launcher
grep -q "rank 2" err || fail "nobody says which one is silent: $(cat err)"
is_saved

# One process alone is asked to end. All of them end as interrupted, with a checkpoint, and none has failed.
for victim in 0 2; do
  rm -rf meet alone pids
  for rank in 0 1 2 3; do
    (one $rank 4 --steps 1000000 --checkpoint-every 1000000 --out alone) >alone$rank.json 2>err$rank &
    echo $! >>pids
  done
  for i in $(seq 600); do grep -q '"step":2,' alone0.json && break; sleep 0.1; done
  kill -TERM "$(sed -n $((victim + 1))p pids)"
  for rank in 0 1 2 3; do
    ends_within 60 "$(sed -n $((rank + 1))p pids)"
    code=130
    [ $rank = $victim ] && code=143
    [ $got = $code ] || fail "SIGTERM to rank $victim alone ended rank $rank with $got, not $code: $(cat err$rank)"
  done
  grep -q '"ended":"interrupted"' alone0.json || fail "no word of it: $(tail -n 1 alone0.json)"
  step=$(value step alone0.json)
  holds "a checkpoint" test -s "$(printf alone/checkpoints/step-%08d/manifest.epl "$step")"
  holds "which is named" test "$(value resume_step alone0.json)" = "$step"
done

# A process that ends before the others have come is not waited for either: they are asked to end.
start=$(now)
early="$train --steps 5 --out early"
"$epl" launch -n 2 --patience 20 -- sh -c "test \$EPL_RANK = 1 && sleep 1 && exit 5; exec $early" >/dev/null 2>err
got=$?
[ $got = 5 ] || fail "the exit code of the first that failed is $got: $(cat err)"
[ $(($(now) - start)) -lt 15 ] || fail "the other one waited in the join"
exit $failed
