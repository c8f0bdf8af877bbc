module epl.ai/samples/processes

go 1.24

require epl.ai/go v0.0.0

replace epl.ai/go => ../../../bindings/go
