#!/bin/sh
# Makes trainingpb of training.proto, and takes the page. It wants protoc; the plugins are tools of go.mod, and built
# from it.
set -eu
cd "$(dirname "$0")"
protoc --plugin="protoc-gen-go=$(go tool -n protoc-gen-go)" \
  --plugin="protoc-gen-go-grpc=$(go tool -n protoc-gen-go-grpc)" --go_opt=module=epl.ai/samples/service \
  --go-grpc_opt=module=epl.ai/samples/service --go_out=. --go-grpc_out=. training.proto
# The page is that of all services.
[ -f page.html ] || cp ../../service/page.html page.html
