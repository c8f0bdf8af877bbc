#!/bin/sh
# help.sh EPL OUT: what the command line says of itself, and that every option refuses a bad value in our words. The
# options are those of the completion, so that none is forgotten.
. "$(dirname "$0")/begin.sh"
"$epl" template mlp --sizes 4,8,2 --out m.onnx >/dev/null || exit 1
{ echo "a,b,c,d,y"; i=0; while [ $i -lt 32 ]; do echo "$((i % 7)),$((i % 5)),-1,$((i % 3)),$((i % 2))"; i=$((i + 1)); \
  done; } >t.csv
"$epl" completion bash >bash.txt
"$epl" man >man.txt

# Help fits 80 columns, is the same by both ways, and the man page knows every option of it.
"$epl" help >help.txt || fail "epl help"
commands=$(sed -n "s/.*compgen -W '\([a-z -]*\) --help.*/\1/p" bash.txt)
[ "$(echo $commands | wc -w)" -ge 9 ] || fail "the completion has few commands: $commands"
for command in $commands; do
  grep -q "^  $command " help.txt || fail "epl help lacks $command"
  "$epl" $command --help >$command.txt || fail "$command --help"
  "$epl" help $command | cmp -s - $command.txt || fail "epl help $command is another text"
  options=$(sed -n "s/^    $command) options='\(.*\)' ;;/\1/p" bash.txt)
  for option in $options; do
    grep -q -- "^  .*$option" $command.txt || fail "$command --help lacks $option"
    grep -q -- "$(echo "$option" | sed 's/-/\\\\-/g')" man.txt || [ $option = --help ] || [ $option = -h ] ||
      fail "the man page lacks $option of $command"
  done
done
for text in help.txt $(for command in $commands; do echo $command.txt; done); do
  awk -v f=$text 'length > 80 { print "FAILED: " f " is wider than 80 columns: " $0; bad = 1 } END { exit bad }' $text \
    || failed=1
done
# What a newcomer needs stands first, marked; the groups come in their order.
[ "$(sed -n '/^[A-Z]/p' train.txt | sed 1,2d | tr '\n' ';')" = \
  "Model and data;Loss;Optimizer and schedule;What is trained;Validation;Saving and resuming;Watching;Shapes and inputs;Machine;Other;Examples;" ] ||
  fail "the groups of train --help: $(sed -n '/^[A-Z]/p' train.txt | tr '\n' ';')"
grep -q '^Usage: epl train MODEL (--text FILE | --data PATH) \[OPTION ...\]$' train.txt || fail "the usage of train"
grep -q 'start from (required)' train.txt || fail "what is required is not marked"
# Names that the engine has come from its tables.
optimizers=$("$epl" inspect --json | sed 's/.*"optimizers":\[\(.*\)\],"readers".*/\1/; s/"name":"\([a-z_0-9]*\)"/\n#\1#\n/g' | sed -n 's/^#\(.*\)#$/\1/p')
[ "$(echo $optimizers | wc -w)" -ge 6 ] || fail "the engine's optimizers were not found: $optimizers"
for word in $optimizers; do
  grep -A3 -- '--optimizer NAME' train.txt | grep -q "$word" || fail "train --help does not name the optimizer $word"
done

# So do the options of an optimizer.
"$epl" inspect --json | sed 's/.*"optimizers":\[\(.*\)\],"readers".*/\1/; s/"options":{\([^}]*\)}/\n#\1\n/g' | \
  sed -n 's/^#//p' | grep -o '"[a-z_0-9]*":' | tr -d '":' | tr _ - | sort -u >options.txt
[ "$(wc -l <options.txt)" -ge 9 ] || fail "the optimizers' options were not found: $(cat options.txt)"
while read -r word; do
  grep -q -- "^  --$word " train.txt || fail "train --help lacks --$word, an optimizer's option"
done <options.txt

# said COMMAND...: it is refused, in one short line, and not in the words of a library.
said() {
  output=$("$@" 2>&1 >/dev/null </dev/null)
  code=$?
  [ $code -ge 2 ] && [ $code -le 5 ] || fail "$* ended with $code: $output"
  case $output in
    *FLOAT*|*INT*|*POSITIVE*|*"in range"*|*"not in {"*|*Option*|*"does not exist"*|*"Could not"*| \
        *xcludes*|*equired*|*rguments*|*"to use"*)
      fail "$* says it in another's words: $output" ;;
    "epl: "*) ;;
    *) fail "$* says: $output" ;;
  esac
  [ "$(printf '%s\n' "$output" | wc -l)" = 1 ] && [ ${#output} -lt 500 ] || fail "$* says too much: $output"
}
for command in train evaluate plan trace inspect devices export check fuzz-layouts bench calibrate completion; do
  case $command in
    train) base="m.onnx --data t.csv --steps 1 --out run --overwrite" ;;
    evaluate) base="m.onnx --data t.csv" ;;
    plan|trace) base="m.onnx --data t.csv" ;;
    export) base="m.onnx --checkpoint none --out x.onnx" ;;
    check|bench) base="none" ;;
    fuzz-layouts) base="--count 1" ;;
    *) base="" ;;
  esac
  for option in $(sed -n "s/^    $command) options='\(.*\)' ;;/\1/p" bash.txt); do
    line=$(grep -m1 -- "^  $option" $command.txt)
    case $option in -h|--help) continue ;; esac
    case $option in --no-peel|--json|--overwrite|--for-training|--free-batch|--tensorboard|--take-weights| \
        --kernels|--all|--layouts|--details|--texts|--exact|--why)
      said "$epl" $command $base "$option=maybe"
      continue ;;
    esac
    said "$epl" $command $base "$option"          # its value is missing
    case $line in
      *" N "*|*" X "*) for value in nan -1e999 1e999 x '' 1,5; do said "$epl" $command $base "$option" "$value"; done ;;
      *" FILE "*|*" FOLDER "*|*" PATH "*) case $option in --out|--report) ;; *) said "$epl" $command $base "$option" \
        none/here; said "$epl" $command $base "$option" '' ;; esac ;;
    esac
  done
done
said "$epl" train
said "$epl" train m.onnx
said "$epl" evaluate m.onnx
said "$epl" train m.onnx --text t.csv --data t.csv
said "$epl" train m.onnx t.csv
said "$epl" train m.onnx --data t.csv --steps 3 --epochs 2
said "$epl" train m.onnx --data t.csv --lr 1 --lr 2
said "$epl" train m.onnx --data t.csv --threads 99999999999
said "$epl" train m.onnx --data t.csv --resume . --resume-anyway weather
said "$epl" train m.onnx --data t.csv --device gpu
said "$epl" train m.onnx --data t.csv --temprature 1
said "$epl" plan m.onnx --data t.csv --stage plna
said "$epl" plan m.onnx --data t.csv --loss cross_entropy
said "$epl" plan m.onnx --data t.csv --optimizer lion
said "$epl" plan m.onnx --data t.csv --schedule cosin
said "$epl" trian
said "$epl" help trian
said "$epl" completion ksh
said "$epl"
case $("$epl" plan m.onnx --data t.csv --loss cross_entropy 2>&1) in \
  *"did you mean softmax_cross_entropy? There are: "*.) ;; *) fail "the part of a name is not understood" ;; esac
case $("$epl" plan m.onnx --json=maybe 2>&1) in *"--json takes no value"*) ;; *) fail "a flag takes a value" ;; esac
case $("$epl" train m.onnx t.csv 2>&1) in *'"t.csv" was not expected'*) ;; *) fail "a word too many is not named" ;; \
  esac
exit $failed
