#!/bin/sh
# odd_texts.sh EPL OUT: words, paths, names and variables of any length and with any bytes. What the tool says of them
# is short, and nothing of it acts on a terminal.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 2,8,3 --out m.onnx >/dev/null || exit 1
printf 'a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,0\n' >t.csv
big=$(head -c 40000 /dev/zero | tr '\0' A)
# An escape, a bell, ends of lines, bytes that are no text, U+009B and U+202E.
odd=$(printf 'a\033[31mR\007\r\nx\377\376\200b\302\233Z\342\200\256')
bad=$(printf '\033\\|\007\\|\r\\|\302\233\\|\342\200\256\\|\377\\|\376\\|\200b')

# plain WHAT COMMAND...: whatever its exit code is.
plain() {
  what=$1
  shift
  "$@" >said 2>&1
  code=$?
  [ $code -lt 128 ] || fail "$what: exit code $code"
  [ "$(wc -c <said)" -lt 6000 ] || fail "$what: $(wc -c <said) bytes are said"
  if LC_ALL=C grep -q "$bad" said; then fail "$what: $(head -c 300 said | od -c | head -5)"; fi
  if LC_ALL=C grep -q "^x" said; then fail "$what: a line ends within a word"; fi
}
for value in "$big" "$odd"; do
  of=$(printf %s "$value" | wc -c)
  for option in --loss --optimizer --schedule --batch --steps --lr --shape --symbol --seed --data-options --resume \
    --strategy --precision --out --metrics --packs; do
    plain "train $option, $of" "$epl" train m.onnx --data t.csv --steps 1 --out run --overwrite $option "$value"
  done
  for command in train evaluate plan trace inspect export check launch template completion bench; do
    plain "$command, $of" "$epl" $command "$value"
    plain "$command --, $of" "$epl" $command "--$value"
    plain "$command -, $of" "$epl" $command m.onnx "-$value"
  done
  plain "command $of" "$epl" "$value"
  plain "secret $of" "$epl" launch --processes 1 --secret-file "$value" true
  plain "not found $of" "$epl" launch --processes 1 -- "./$value"
  for name in EPL_RANK EPL_WORLD_SIZE EPL_RENDEZVOUS EPL_ADDRESS EPL_TRANSPORT EPL_SECRET_FILE; do
    plain "$name $of" env EPL_RANK=0 EPL_WORLD_SIZE=2 EPL_LOCAL_RANK=0 EPL_LOCAL_WORLD_SIZE=2 \
      EPL_RENDEZVOUS=tcp://127.0.0.1:45671 $name="$value" \
      "$epl" train m.onnx --data t.csv --steps 1 --out run --overwrite --join-timeout 0.3
  done
  for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do
    plain "$name $of" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=45672 $name="$value" \
      "$epl" train m.onnx --data t.csv --steps 1 --out run --overwrite --join-timeout 0.3
  done
done
# A secret that others may read, by a name that acts.
printf secret >"$odd" && chmod 644 "$odd"
plain "a secret's name" "$epl" launch --processes 2 --secret-file "$odd" true
grep -q "others than its owner" said || fail "no warning of a secret that others may read: $(cat -v said)"
exit $failed
