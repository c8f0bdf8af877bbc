module epl.ai/go

go 1.24
