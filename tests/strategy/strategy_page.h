// What people write of docs/strategy.md; the tables between are made from the sources (documentation_test.cc).
#pragma once

#include <string_view>

namespace epl::documentation_test {

inline constexpr std::string_view opening = R"(# Strategies

Made from the table of keys in `core/strategy/strategy.cc`; do not edit.

A strategy says how the work of a step is cut. It is one JSON object, given to `epl_strategy_parse`, or to the command
line as `--strategy` (the JSON itself, or the name of a file with it). Without one, a step runs on one rank and is not
cut. A strategy never changes the mathematics, but for `batch.semantics`, `communication.gradients_reduce_method`,
`communication.fp16`, `amp.level` and `memory.allow_state_type`. At the default `reproducible.level`, `data`, it does
not change one bit of the result, but for `split`. At `layout` no split does either.

```json
{"pipeline.num_micro_batch": 4, "reproducible.units": 8}
```

The keys of the table below stand at the top level. A key that does nothing because another one is not set is an error
that names both, as `amp.type` without `amp.level`. Two more keys stand beside them: `scopes`, outermost first, and
`default`, the scope of every node that no other scope matches. A scope has

- a kind with its number of devices: `"replicate": 2`, `"split": 2` or `"expert": 4`;
- `match`, what it matches: a glob or a list of globs over node names, `op:MatMul`, `param:embed*`, or `node:NAME` for
  all that one node of the model becomes;
- a `name`, and inner `scopes`.

```json
{"default": {"replicate": 2}}
```

This version runs eleven things:

- data parallelism: `default` with `replicate` on as many ranks as the plan is made for;
- micro-batches;
- pipelines: sibling scopes are the stages of a pipeline, in their order, each with its own number of ranks, or the
  stages are found;
- weights in shards: `split`, as `default` or as the kind of a stage;
- experts: `expert`, each rank has some of them;
- copies that share out what they keep of the optimizer: `zero.level`;
- results that the backward pass computes again: `gradient_checkpoint.type`, `memory.budget`;
- values that lie in another memory while nobody uses them: `offload.level`;
- mixed precision: `amp.level`;
- gradients that are summed in 16 bits: `communication.fp16`;
- all of these but the last two, found: `auto.auto_parallel`.

```json
{"pipeline.num_micro_batch": 4, "pipeline.strategy": "1F1B",
 "scopes": [{"name": "first", "replicate": 1, "match": ["embed*", "h.0*"]},
            {"name": "second", "replicate": 1, "match": ["*"]}]}
```

A node belongs to the first scope that matches it, and inside that to the first inner scope that matches it. Beside
stages, a node that no scope matches goes where its operands are; beside a single scope, the `default` has it. More
ranks than the stages need make copies of the pipeline: four ranks and two stages of one rank are two copies. The first
stage that uses a shared weight lends it to the others. Scopes that share one must cut it over as many ranks, or not at
all; scopes on the same ranks may have it in shards and replicated. A stage that needs a result of a later one, a scope
that matches nothing, and numbers that do not divide are errors, which name the scope and the numbers.

Stages may have different numbers of ranks and different kinds. A scope inside another one divides the ranks of one copy
of it. Here the second stage has two ranks for each rank of the first, and cuts its weights over them:

```json
{"pipeline.num_micro_batch": 4,
 "scopes": [{"name": "first", "replicate": 1, "match": ["embed*", "h.0*"]},
            {"name": "second", "replicate": 2, "match": ["*"], "scopes": [{"match": "*", "split": 2}]}]}
```

A model's file may say itself how to spread it; a strategy without `scopes` and `default` then takes what the file says,
where there are several ranks. `epl_strategy_of_model` gives it as a strategy. There are two ways:

- our words: the model's metadata `epl.strategy` is a strategy as above, and a node's metadata `epl.scope` the name of
  one of its scopes, or the path to an inner one (`second/heads`);
- ONNX's words (IR 11): a device configuration, each node's pipeline stage, and the shards of its weights. Sibling
  stages may have devices of their own, or all the same ones. A stage whose weights are in n shards is a `split` of n,
  and they are pinned to the dimensions of their shards (`dims`, below).

`epl plan model.onnx --annotated OUT.onnx` (`epl_plan_export_onnx`) writes a plan into its model in ONNX's words, and
what these cannot say into `epl.strategy`. If that has scopes of its own, as for experts or interleaved stages on
ranks, they count when the file is read. So the file gives the same plan again.

Sibling scopes take different ranks. With `cluster.colocate_split_and_replicate`, and where there is one scope alone,
they share those of what they stand in. Here each rank has all of the body and its part of the samples, and a shard of
the large classifier, over the same ranks; between the two, ranks exchange what they have:

```json
{"default": {"replicate": 1}, "scopes": [{"match": "classifier*", "split": 4}]}
```

`split` cuts the nodes over ranks that see the same samples:

```json
{"default": {"split": 2}}
```

Each weight is cut where its node allows it: a product by its columns or its rows, an attention by its heads. The state
of the optimizer is cut as its weight is. Shards need not be equal: of 10 heads, 4 ranks have 3, 3, 3 and 1, and each
has memory for 3. What no rule cuts runs on every rank. Ranks that are left over are data parallelism: four ranks and
`split` of 2 are two copies. Where a product is cut by its rows, its sum is taken in another order, so the last bits may
differ from those of one rank. They are the same for every number of copies and micro-batches, and for every schedule of
the same stages: what is cut is decided within each stage.

`dims` of a scope says in which dimension weights, and results of nodes, are cut:

```json
{"default": {"split": 2, "dims": {"*mlp.c_fc.weight": 1, "*head.weight": 0}}}
```

A result is named as its node; `epl plan` prints all names. Globs name several values. The first that names a value
counts, those of inner scopes before those of the scopes around them. A negative dimension counts from the end. All else
is chosen around what is pinned, and the reasons of a plan say so. A name that names nothing, a dimension that no rule
of a node can cut over so many ranks, two pins that one node cannot obey at once, and a result that the caller or other
ranks get all of are errors. They name the scope, the value, the node and the number of ranks.

```json
{"default": {"split": 2}, "reproducible.level": "layout"}
```

At level `layout` the bits are those of one rank at this level, with 1, 2, 4 or 8 ranks to a split. Only what divides
into equal shards is cut then; the rest is replicated, and a note of the plan says so. A sum that a split
may cut then adds up to 8 segments one by one and joins them as a binary tree, on one rank as on many. This costs some
time, which `epl bench` measures, and the bits are other ones than at `data`. What is not cut in full segments is not
cut there at all: it runs on every rank, or is cut elsewhere. A plan that would break the promise is an error that names
the node.

`expert` is for mixtures of experts. Here their weights are tensors `[experts, ...]`:

```json
{"default": {"replicate": 1}, "scopes": [{"match": "*experts*", "expert": 4}]}
```

Outside the scope the batch is cut over all ranks. Inside it, 4 ranks share out the experts, and each has those for the
tokens of all 4: tokens go there and back by exchanges. The degree is free: on 8 ranks, two groups of 4 have the same
experts, whose gradients are summed over these two groups, those of all other weights over 8 ranks. The scope should
hold the products with the experts' weights (`"match": "param:*experts*"`); what lies between them is in it as well. The
gate, and what sends tokens to experts and adds up their answers, stay outside. Then no sum is cut, and the bits are
those of one rank at level `data` as well. A gate that counts the tokens of an expert over the full batch sees the
full batch on every rank, and makes it one micro-batch unless each is independent (below); one that counts them for
each sample follows any cut.

Where tokens come to an expert's slots by index (scatter into zeros, gather from what the experts answer), the slots are
given to ranks with the experts, and a token goes to the one rank that has its slot (`dispatch_rows`, `combine_rows`).
What moves tokens by index is in the scope too. Several groups of ranks that have the same experts fill the same slots:
a rank first gets the tokens of its peers in the other groups.

Experts whose weights are gathered by the expert of each token (`weights[expert_of_token]`, as transformers exports
`batched_mm`) are given to ranks as well: the scope finds the products with what is gathered. Each token goes to the one
rank that has its expert (`dispatch_rows`), stays there for all products of the expert, and its answer comes back
(`combine_rows`), so that a token moves once each way however many ranks there are. No token is dropped: a rank has
room for all of them, since all may go to one expert, and its work depends on what the gate chooses. Where that is too
much room, `"split": 4` instead of `"expert": 4` cuts inside each expert: tokens go to all ranks, each has a shard of
every expert and of what it computes, and as much to do whatever the gate chooses.

Experts that are nodes of their own, as a loop over experts is exported, lie on ranks uncut: of E experts over 4 ranks,
expert e goes to number e * 4 / E of them, and E need not divide. A rank has the weights of its experts alone, their
gradients and what the optimizer keeps of them, and computes nothing of other experts. It has room for as many as the
rank with most. Each of these experts looks at all tokens, so all tokens of the group come to its ranks; what one
expert alone is given, and what it answers, is exchanged, each rank getting its own experts' of all tokens, or all
experts' of its own tokens. `epl plan` says which rank has which expert. Checkpoints and exported files are as those of
one rank.

Such experts are subgraphs of the scope that are alike but for their weights, and share nothing but what they take.
In a scope that has other nodes as well, numbers in the names of weights tell them apart (`experts.3.w1`). Experts that
are not alike, that draw random numbers (a dropout inside each), or whose weights another node uses, are cut over the
ranks, each of them, as by `split`, and the plan has a note that says why.

)";

inline constexpr std::string_view micro_batches = R"(## Micro-batches

`pipeline.num_micro_batch` cuts the batch in time. What looks at all samples together over ranks (the statistics of a
batch norm, a gate with a capacity, what balances experts) cannot do so over micro-batches, which never meet. Such a
model trains on the full batch as one micro-batch: the answer and its bits are those of one rank, the memory is that of
all samples at once, and a pipeline waits as with one micro-batch. A note of the plan names the node. Evaluation, where
nothing is coupled, keeps its micro-batches. A user who wants the batch cut says that each micro-batch is independent:

```json
{"batch.semantics": "per_micro_batch", "pipeline.num_micro_batch": 4}
```

A step is then the mean of steps over each micro-batch alone, from the same weights: the loss and all gradients are
means over micro-batches, and so are running statistics, which change once a step. A loss that counts targets counts
those of a micro-batch. Micro-batches are runs of samples of the global batch, and all ranks share each. So which
samples are in one depends on no layout, and all layouts with as many micro-batches have the same bits, within what
their level promises. Where nothing looks at several samples, all targets count and the number of micro-batches is a
power of two, these are the bits of the full batch together. With another number of micro-batches the answer is
another one.

The model is bound at the size of a micro-batch. A file that fixes its batch is freed of it, and what its constants say
of a batch (for how many tokens an expert has room) is then said of a micro-batch. Gradients are summed over ranks for
each micro-batch, which costs more communication than once a step.

With `communication.gradients_reduce_method` = `sum` the gradients of independent micro-batches are added up, and not
divided by their number. This is what the original EPL did over copies and micro-batches. The loss is their mean as
before. Clipping sees the sum. Under `batch.semantics` = `global` a sum is an error: the loss is a mean over the full
batch, and how many parts ranks make of it is no matter of mathematics.

```json
{"batch.semantics": "per_micro_batch", "pipeline.num_micro_batch": 4, "communication.gradients_reduce_method": "sum"}
```

`batch.order` says what cuts the batch first. With `ranks`, each rank has one run of samples and cuts it into
micro-batches. Gradients are summed over ranks once, behind the last micro-batch. With `micro_batches`, all ranks share
each micro-batch, and gradients are summed over ranks in each. The bits are the same. At `zero.level` = `v0`, what a
rank adds up over micro-batches is then its shard of the gradient: it takes less memory, and more communication. An
output cannot be merged over one process then, because a process has no run of samples.

```json
{"batch.order": "micro_batches", "zero.level": "v0", "pipeline.num_micro_batch": 4}
```

)";

inline constexpr std::string_view found_stages = R"(## Pipelines

Stages that no scopes name are found: `pipeline.num_stages` says for how many ranks.

```json
{"pipeline.num_stages": 4, "pipeline.num_micro_batch": 8, "pipeline.strategy": "1F1B"}
```

The nodes that see the inputs are cut, in their order, into runs that take about the same time by the cost model: the
backward pass, the update, and what is sent between stages count too. Of the cuts that are within a twentieth of the
best, those are taken that leave repeated layers uncut, and then those over which least is sent. More ranks make copies.
`epl plan` shows where each stage begins and its part of the work.

The ranks of a stage are shared out as `default` says, with the scopes inside it. Beside `pipeline.num_stages`, scopes
are no stages: the ranks of each stage are theirs in turn, and `default` is what no scope matches. This is a pipeline of
two stages, whose two ranks each split the feed-forward layers, and have copies of all other weights:

```json
{"pipeline.num_stages": 2, "pipeline.num_micro_batch": 4,
 "scopes": [{"match": "*.mlp.*", "split": 2}]}
```

Where a schedule gives a rank several stages and scopes name them, all these scopes share out their ranks alike.

A schedule says in which order ranks go through the micro-batches. It changes no bit. Ranks are idle while the pipeline
fills and drains: a share of the step that follows from the schedule, if all stages take the same time, and a
micro-batch as long forward as for the gradients of its operands and for those of its weights.

| `pipeline.strategy` | stages of each rank | idle, with 4 ranks and 8 micro-batches | what a rank does |
|---|---|---|---|
)";

inline constexpr std::string_view closing = R"(
## Copies

Ranks that cut the batch have copies of the same weights, and each would update all of them. Of large weights they
share this out (ZeRO, Rajbhandari et al. 2020), where that saves time by the cost model of the device. On processors
such a weight has 7 KiB or more, each copy gets an equal run of its rows, and nobody needs its full gradient. The plan
has a note of it. `"zero.level": "off"` replicates everything on each copy, and `v0` shares out what it can, to save
memory:

```json
{"zero.level": "v0"}
```

At `v0` each of N copies updates one of N equal shards of a weight. It keeps the optimizer's state of this shard alone,
so the state takes an N-th of the memory. It gets this shard of the sum of gradients; the new shards are then exchanged.
Together this moves as much as the sum of full gradients, or less: of a large weight and a small batch, copies give
each other the samples, and each computes its shard of the gradient of all. No bit changes, and it goes with everything
above: with stages, whose copies share what the stage has, with splits, of whose shards copies have shards, and with
micro-batches, after which gradients are summed once. A weight is cut in its first dimension that N divides; one without
any stays replicated on each copy, and the plan has a note. Where the norm of all gradients is taken, to clip them, each
copy has full gradients first. Checkpoints, and what is read and written by name, are full tensors.

| `zero.level` | of N copies, each has an N-th of | moves beside the sum of gradients |
|---|---|---|
| `v0` | the optimizer's state | new weights, in place of half of the sum |
| `v1` | that, and gradients | the sum once for each micro-batch; gradients once more, if they are clipped |
| `v2` | that, and weights | weights twice for each micro-batch, and once in `evaluate` and `predict` |

At `v1` all copies share each micro-batch: without `batch.order`, micro-batches come first, and `"batch.order": "ranks"`
is an error. A copy adds up its shard of the gradient alone. Gradients are reduced in `communication.max_splits`
buckets, each as soon as its gradients are there, so that full gradients are not in memory all at one time. Clipping
gathers one gradient after the other. At `v2` a weight is gathered before a layer needs it, in the forward pass and
again in the backward pass, and its memory is free behind that. Frozen weights are stored in shards too. On a device
that moves bytes while it computes, the weights of the next layer are on their way meanwhile. Where no dimension
divides, `v1` and `v2` cut unevenly, and the last shard has fewer rows or columns. `epl plan` has the bytes of a rank.

```json
{"zero.level": "v2", "pipeline.num_micro_batch": 4}
```

## Memory

The backward pass needs results of the forward pass. A rank keeps them, or computes them again when it needs them. This
takes time and saves memory. No bit changes: what is computed again is cut as before, draws the same random numbers, and
runs the same kernels. It goes with every layout above. The predicted seconds of a plan count it.

With `auto` a solver chooses, for each stage, what takes the least memory, and of that what takes the least time.
Pipelines keep results for each micro-batch in flight. The solver cuts the forward pass into blocks where one result
goes on, tries everything in a block, and joins blocks. A note of the plan says how much less time any other choice
could take at most, in as few bytes and by the cost model:

```json
{"gradient_checkpoint.type": "auto"}
```

With `collection` the user says what is kept: results by their names, or by those of their nodes. Without names, what
one TaskGraph gives another is kept. What comes behind the last of them is not computed again. With
`gradient_checkpoint.end_taskgraph` only TaskGraphs up to that number compute anything again:

```json
{"gradient_checkpoint.type": "collection", "gradient_checkpoint.tensors": "h.*.attn.residual, h.*.mlp.residual"}
```

What is summed over ranks, comes from other ranks or goes to the caller is always kept, so nothing is sent twice. Under
`ZB-H1` and `ZB-V` little is saved: gradients of weights wait for the end, and what they take is kept until then.

With `gradient_checkpoint.check_gradients` a session computes the gradients of its first step twice before that step:
as planned, and with nothing computed again. An op of the host runs each time. If one bit differs, the step is an error
that names the first such parameter, and changes nothing. So a kernel is found that gives other bits when it runs again.
The plan then has an entry `check`, whose memory counts in its peak, so take the key away when it has passed. A
`memory.budget` that makes the plan compute results again has no room for this, and is an error beside it.

```json
{"gradient_checkpoint.type": "auto", "gradient_checkpoint.check_gradients": true}
```

`memory.budget` limits what a rank may have at its peak: weights, the optimizer's state and all that a step computes
into. What the strategy does not set is chosen: what is computed again, `zero.level`, `offload.level` with
`offload.values`, and `pipeline.num_micro_batch`, unless micro-batches are independent. Values are put into files only
where `offload.folder` says in which folder. No choice changes a number at level `data`. Each combination that may be
the fastest is planned, and its step is simulated, as a mean over the shapes of a batch; what is computed again counts
by the cost model. Of what may lie in another memory a quarter, half or three quarters of the bytes may stay: the values
whose copies take most time for each byte. Of all whose exact peak fits the fastest one is taken, also where the plan
fits as it is. So more budget never takes longer, and less never has a higher peak. If none fits, the error says how
many bytes are missing, and with which keys. Notes of a plan say what was chosen and what it costs. `epl plan` lists
what was tried, with peak and time; the reasons of a plan name the nodes.

With `memory.allow_state_type` = `bf16` a budget may also store the optimizer's states in bf16, as the optimizer's
option `state_type` does. That changes numbers, so it is not chosen unasked:

```json
{"memory.budget": "1.6GB", "memory.allow_state_type": "bf16"}
```

All processes of a job choose alike, whatever numbers of threads they have: where ranks of a plan are in other processes
(`local_ranks` of its options), times and bytes are those of ranks with one thread. Kernels on more threads may need
more bytes. Where these do not fit, a rank of that process has as many threads as fit, and a note says how many. Kernels
for other processors may need other bytes too: give hosts that differ there one plan file. A budget:

```json
{"memory.budget": "1.6GB"}
```

With `offload.level` values lie in another memory of the device while nobody uses them. On the CPU that memory is files
in the folder that `offload.folder` names, or else in that where the process runs. `offload.values` says which values:
`states` of the optimizer, `weights`, `gradients` until the update, and `activations`, which are results of the forward
pass until the backward pass takes them. The last two stay where micro-batches are independent, and naming them is an
error there. Without the key states and weights move, and of the others those whose copies take no time by the cost
model:

```json
{"offload.level": "v0", "offload.values": "states, activations", "offload.folder": "scratch"}
```

What is needed comes ahead, by a stream or a thread of its own, and no bit changes. A plan says how many bytes it has in
each memory. Files take their room when a session begins, so a full disk is an error before the first step. Files have
no names: a process that is killed leaves none. A disk that fails ends the step with an error, in all processes of the
job. What has to last is in checkpoints, as without offload.

## Mixed precision

With `amp.level` = `O1` operands of matrix products and convolutions have 16 bits, bf16 or f16 as `amp.type` says. Each
sum of such products is float32, whether a kernel adds it up, or units of the batch, micro-batches or ranks each have a
part. The full sum is rounded once. So no layout adds numbers of 16 bits, and every layout has the bits of one rank.
Norms, softmax, attention, losses and elementwise arithmetic stay in float32. What only moves elements keeps 16 bits.
Results of products wait for the backward pass in 16 bits. Weights, gradients and states are float32. A weight is cast
where it is used and not kept in both types. `train`, `evaluate` and `predict` compute alike.

```json
{"amp.level": "O1", "amp.type": "bf16"}
```

float16 ends at 65,504, and below 6e-8 it is zero. So gradients begin with a loss scale and are divided by it before the
update. With `amp.loss_scale` = `dynamic` it begins at 65,536. A step whose gradients overflow changes nothing and does
not count, and the scale is halved. After 2,000 steps that do not, it is doubled. All ranks have the same scale, and
checkpoints keep it. A number instead is a fixed scale, under which an overflow is an error. `amp.debug_log` logs each
step that overflows, and where that begins:

```json
{"amp.level": "O1", "amp.type": "f16", "amp.loss_scale": "dynamic", "amp.debug_log": true}
```

## Sums in 16 bits

With `communication.fp16` gradients go from rank to rank in 16 bits, half of the bytes of float32. The type is f16, or
bf16 as `communication.fp16_type` says. A part of the sum of a gradient is multiplied with `communication.fp16_scale`,
which is for f16 alone, and rounded. Two parts are added in float32, and their sum is rounded again. The full sum is
widened and divided by the scale. All behind it, as clipping and updates, is float32:

```json
{"communication.fp16": true, "communication.fp16_type": "bf16"}
```

The level says what a part is. At `run` it is what a rank has added up in float32, so that each rank rounds once, and
one rank does not round. At the other levels each unit of the batch is a part, on one rank and over micro-batches too,
and every layout has the bits of one rank: the same job at this key. A rank that has several units sums them one by
one, which takes more time and memory. It has none to add where `reproducible.units` is the number of copies times that
of micro-batches.

It goes with mixed precision, whose products have float32 sums until here, with pipelines and with `zero.level`, whose
gradients are then scattered in 16 bits. Weights that are gathered, and gradients that are gathered for their norm,
have all their bits. An overflow is an infinity in the sum and thus in the verdict of the step: under a dynamic loss
scale the step is skipped and the scale halved, else it is an error. Some sums stay in float32: those that the backward
pass goes on with, as the sums of a batch norm, and all of models in 16 bits. Where experts cut a weight by the rows
that its tokens pick, and at level `layout` where splits cut windows or tables, a kernel has all units at once. That is
refused, and `run` has it. The cost model and the search count the bytes that move.

## Data

Batches are those of all ranks. By default each rank takes its part of every batch, whatever file it is from, so the
order of the samples does not depend on the layout. A process reads the samples of its own ranks and no others. With
`io.slicing` files are sharded over the replicas instead: file `i` goes to replica `i` modulo their number. Each
replica's part of a batch then comes from its own files, shuffling stays within them, and an epoch ends with the replica
that has fewest samples.

```json
{"io.slicing": true, "io.unbalanced_io_slicing": true}
```

Files that do not come out even are sharded if a key says how: with `io.unbalanced_io_slicing` some replicas have a file
more than others, with `io.drop_last_files` the last files are left out. With neither, or with fewer files than
replicas, nothing is sharded, and a warning says so. Data of which a share is held out has no full files and is an
error; use a validation file. A run that goes on keeps the slices that it began with, under whatever layout, so that its
position means the same samples.

## Outputs

A plan's outputs are those of the full batch, wherever its ranks are. Six keys merge them, as the collections of the
original EPL did (`GLOBAL_CONCAT_OBJECTS` and the others): each is a list of globs over the names of outputs.

```json
{"outputs.global_mean": "loss", "outputs.global_sum": "hits", "outputs.local_concat": "logits, h.*"}
```

`concat` gives samples one after another, which is what an output gives that no key names. `mean` and `sum` leave out
the dimension of the samples: `[8, 10]` becomes `[10]`. They are taken in the order of the samples, so that no layout
shows in them. `global` is the full batch. `local` is what the ranks of one process work on, so in a job of one process
the two are the same. An output without a dimension of samples, as the loss, is a value of the full batch already. It
stays as it is, and no process has a part of it. What a key names is also kept in steps and evaluations, for
`epl_session_output`.

## Keys

Everything else is read and checked, and a plan that asks for it is an error: nothing is ignored. Where the table says
"no", a key of the original EPL has no meaning here: it has its default and no other value, for the reason in the last
column. A key or word that does not exist is an error that names the nearest one. The batch of a plan is cut in units
(`reproducible.units`). A shard is what a copy has in a micro-batch, and gets 1, 2, 4 or another power of two of units.
So 2, 4 and 8 shards need no thought. For 3 copies of a batch of 24 say `"reproducible.units": 24`: then 3, 6, 12 and 24
copies, and 3 or 6 micro-batches on one rank, have the same bits. Counts that would add up the shards in another order,
as 2 copies of 3 micro-batches or stages of 2 and of 3 copies, are refused with the reason. At
`"reproducible.level": "run"` everything goes that divides the batch. A batch that does not divide into so many shards
is cut into as many as do divide it, and a note of the plan says so: of 8 copies of a batch of 4, two each have the same
sample, and 3 copies of a batch of 8 all do the same work.

| key | default | values | in this version | meaning |
|---|---|---|---|---|
)";

}  // namespace epl::documentation_test
