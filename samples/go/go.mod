module epl/samples/go

go 1.19
