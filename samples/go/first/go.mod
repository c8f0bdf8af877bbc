module epl.ai/samples/first

go 1.24

require epl.ai/go v0.0.0

replace epl.ai/go => ../../../bindings/go
