// What docs/strategy.md says of plans that are found (auto.auto_parallel).
#pragma once

#include <string_view>

namespace epl::documentation_test {

inline constexpr std::string_view found_plans = R"(
## Found plans

With `auto.auto_parallel` the planner finds what the strategy leaves open: copies and stages, the schedule, how many
micro-batches there are, what copies share out (`zero.level`), what is computed again, and what lies in another memory:
the optimizer's states, or weights too, with gradients where there is one micro-batch. Where links of the machine's file
join hosts of several ranks, it also chooses whether all-reduces go inside hosts first (`communication.hierarchical`).
At the levels `run` and `layout` it also tries to split all nodes over 2, 4 or 8 ranks, with and without
`split.sequence`. At the others a split may change bits, so none is chosen unasked. Experts whose weights or nodes have
`experts` in their names are shared out over numbers of ranks that divide them, up to 512, in one stage. A key that is
set stays as it is:

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

At the level `data` a batch has 8 units unless `reproducible.units` asks for more, and copies x micro-batches may be no
more than these. Where more units would make a step faster, or a plan for so many ranks possible, a note says how many,
and what a step would take. They are not taken unasked, because bits follow from them.

Notes of the plan say what was taken, what decided, and how far it may be from the best. `epl plan --why` prints them
alone, for any strategy. The page of `epl plan --html` draws the plans that were looked at, by time and memory, with
what the fastest one takes where a rank may have less. `epl plan --devices 1..8` finds a plan for 1, 2, 4 and 8 devices,
and says how long a step is and what a rank has with each, and where adding devices stops to pay. On the processor a
device is a core then, unless `--threads` says otherwise:

```sh
epl plan model.onnx --batch 64 --ranks 8 --why
epl plan model.onnx --batch 64 --devices 1..8
```

A deadline of the call ends the search, and the best plan so far is taken, with a note. Without any plan yet, and in a
job of several processes, which must have the same plan, it is an error. A call that is cancelled is one too.

Scopes and a `default` say where nodes run, and beside them the key is an error. Experts in several stages, and
stages of different numbers of ranks, are not found yet. Which layers a stage has is decided anew when the plan is made,
as for `pipeline.num_stages`.
)";

}  // namespace epl::documentation_test
