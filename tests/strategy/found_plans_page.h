// What docs/strategy.md says of plans that are found (auto.auto_parallel).
#pragma once

#include <string_view>

namespace epl::documentation_test {

inline constexpr std::string_view found_plans = R"(
## Found plans

With `auto.auto_parallel` the planner finds what the strategy leaves open: copies and stages, the schedule, how many
micro-batches there are, what copies share out (`zero.level`), what is computed again, and what lies in another memory:
the optimizer's states, or weights too, with gradients where there is one micro-batch.
At the levels `run` and `layout` it also tries to split all nodes over 2, 4 or 8 ranks, with and without
`split.sequence`. At the others a split may change bits, so none is chosen unasked. Experts whose weights or nodes have
`experts` in their names are tried on up to 64 ranks that share them out, in one stage. A key that is set stays as it
is:

```json
{"auto.auto_parallel": true, "pipeline.num_micro_batch": 4}
```

The model is measured as a chain of layers, in plans of one copy whose step is simulated. A search over numbers finds
the best two dozen plans by the cost model, and knows how far they may be from the best there is. A step of each is gone
through call by call, in numbers still. The best three that are possible are made and simulated beside the strategy as
it is, and the fastest is taken. So no step is slower than without the key, as far as the simulator knows. A model's own
annotations are part of the strategy as it is. Only plans within `memory.budget` count. Without one, the memory of the
device is the limit, also of a plan for one rank. What lies in files is looked at only with `offload.folder`.

Where the file of a device or of a machine names `kinds` of devices ([gpu.md](gpu.md#plans-without-a-gpu)), stages of
faster ranks have more layers, and each rank keeps to its own memory. Copies of one stage have as many samples each.

Notes of the plan say what was taken, what decided, and how far it may be from the best. `epl plan --why` prints them
alone, for any strategy. The page of `epl plan --html` draws the plans that were looked at, by time and memory, with
what the fastest one takes where a rank may have less. `epl plan --devices 1..8` finds a plan for 1, 2, 4 and 8 devices,
and says how long a step is and what a rank has with each, and where adding devices stops to pay. On the processor a
device is a core then, unless `--threads` says otherwise:

```sh
epl plan model.onnx --batch 64 --ranks 8 --why
epl plan model.onnx --batch 64 --devices 1..8
```

Scopes and a `default` say where nodes run, and beside them the key is an error. Experts in several stages, and
stages of different numbers of ranks, are not found yet. Which layers a stage has is decided anew when the plan is made,
as for `pipeline.num_stages`.

## What bounds a step

`epl plan`, its page (`--html`) and the document "overview" of `epl_plan_describe` say what a step asks of the devices
and of their links. All seconds are those of the cost model, of the machine that the plan is made for.

A roofline (Williams, Waterman, Patterson 2009) is of the kernels of a rank of each virtual device: operations, bytes
that are read and written, operations for each byte, the rates of the device, and the seconds that either needs alone.
What needs more bounds the stage. Launches come on top: where they take longer than both, larger kernels help, and
nothing else. The page draws a dot for each kind of work on each type, below the roof of the device.

Ranks of a block are joined by links of a level, and blocks by those of the next one, as the machine's `links` have it
([calibration.md](calibration.md#the-file)). Of each level the plan says what a rank sends over it in a step, and the
page draws the blocks with their bytes.

The link-capacity bound is the least seconds that links need for a call, or for a step, whatever the way. What must
leave or enter a block goes over the links that its ranks have to the others. Of a sum of N bytes over n ranks, each
sends 2 (n - 1) / n N at least (Patarasu and Yuan 2009). Of h hosts, all together send 2 (h - 1) N, and each sends N at
least, over the links of its ranks. The level that needs the most seconds counts, without latencies, and calls of a step
may take place at one time. Beside it stands how many times as long the way takes that is chosen. Of large sums, with
`communication.hierarchical`:

| ranks | times the bound, at most |
|---|---|
| one host of 8 | 1.01 |
| 4 hosts of 8, 100 GB/s inside and 1 Gb/s for each rank between them | 1.02 |
| the same with sockets of 4, and 20 GB/s between those of a host | 1.1 |
| two ranks | 1.01 |
| a host of 8 and one of 4 | 1.35: the host of 8 sends for two blocks of 4 ranks |
| 4 hosts of 8, a tenth of 100 GB/s between them | 1.95: both levels take as long, one after the other |
| 4 hosts of 8 in rings | 1.3: a ring brings 2 (n - 1) / n of the bytes out of each host |

Small calls take many times as long as the bound, because messages have latencies.
)";

}  // namespace epl::documentation_test
