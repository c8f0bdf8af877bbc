"""A random script: random_script.py TABLE SEED. Calls of every function with arguments that are mostly right, on handles
of which it knows the type and not whether their call went well. What runs in two ways, in time or in memory that
nobody wrote, it leaves out or hides."""
import pathlib
import random
import sys

CALLS = 80
START = r'''epl_engine_create { threads 1 } -> engine
epl_x_template_write engine "mlp" "{\"sizes\":[4,8,2],\"seed\":1}" "mlp.onnx" NULL
write "data.csv" "a,b,c,d,target\n1,2,3,4,0\n4,3,2,1,1\n1,1,1,1,0\n2,2,2,2,1\n3,3,3,3,0\n"
epl_model_load engine "mlp.onnx" NULL NULL -> model
read file "mlp.onnx"
buffer stream ""
epl_trainer_parse engine "{\"loss\":\"softmax_cross_entropy\",\"optimizer\":\"adam\",\"symbols\":{\"batch\":2}}" -> trainer
epl_strategy_create engine -> strategy
epl_plan_create model trainer NULL NULL NULL -> plan
epl_session_create plan NULL NULL -> session
epl_predictor_create session NULL NULL -> predictor
epl_evaluation_create plan "accuracy" -> evaluation
epl_dataset_open engine "data.csv" "{\"batch\":2}" NULL -> dataset
epl_cancel_create engine -> cancel
epl_tensor_create_copy engine EPL_DTYPE_F32 [ 2 4 ] f32:1,2,3,4,4,3,2,1 -> x
epl_tensor_create_copy engine EPL_DTYPE_I64 [ 2 ] i64:0,1 -> target
epl_tensor_create engine EPL_DTYPE_F32 [ 2 2 ] -> scores'''
HANDLES = ("engine", "model", "trainer", "strategy", "plan", "session", "predictor", "evaluation", "dataset", "cancel")
# Of another kind: processes that wait for each other, memory that is taken over, and what frees a handle.
LEFT_OUT = {"epl_store_create", "epl_tensor_from_dlpack", "epl_tensor_to_dlpack", "epl_text_destroy", "epl_text_data",
            "epl_cancel_trigger", "epl_error_create", "epl_feed_create", "epl_feed_push", "epl_dataset_of_feed"}
# Times, ports, paths of the machine.
HIDDEN = {"epl_version", "epl_engine_describe", "epl_session_trace", "epl_event_fd", "epl_checkpoint_describe",
          "epl_event_wait", "epl_store_address", "epl_store_id", "epl_predictor_memory_bytes"}
TEXTS = {
    "path": ("mlp.onnx", "missing.onnx", "data.csv", "saved", "out/of/reach", "", "one.plan", "new.onnx"),
    "other": ("one.plan", "missing.plan"), "folder": ("adapters", "data.csv"),
    "family": ("mlp", "gpt3"), "key": ("optimizer", "optimizer.lr", "loss", "clip_norm", "no.key", "lr", "frozen", ""),
    "value": ("sgd", "0.5", "mse", "true", "none", "net.0.weight", "softmax_cross_entropy", "-1", "many", "\\xff"),
    "pattern": ("net.0*", "*.bias", "nothing*", "[", ""), "symbol": ("batch", "time"), "input": ("x", "target", "y"),
    "name": ("loss", "accuracy", "net.0.weight", "net.2.bias", "learning_rate_scale", "x", "nothing", "logits"),
    "stage": ("graph", "explain", "predict.program", "no stage"), "document": ("memory", "notes", "no document"),
    "format": ("onnx", "safetensors", "png"), "metrics": ("accuracy", "none", "no_metric", "top_k(k=1)"),
    "options": ("{}", "{", '{\\"batch\\":2}', '{\\"seed\\":2}', '{\\"no\\":1}'), "reason": ("why not",),
    "facts": ("{}", '{\\"rows\\":3}', "[", '{\\"a\\":{}}'),
    "settings": ("{}", '{\\"steps\\":2}', '{\\"epochs\\":1,\\"patience\\":1}', '{\\"steps\\":-1}', '{\\"stps\\":2}', "["),
    "json": ("{}", "[", '{\\"loss\\":\\"mse\\"}', '{\\"auto.auto_parallel\\":true}'), "message": ("none",)}
NUMBERS = {"ranks": (-1, 0, 1, 2), "device_count": (0, 1, 2), "batches": (0, 1, 3, -1), "samples": (5,),
           "size": (-1, 1, 2, 3), "steps": (0, 1, 2, -1), "dtype": (0, 1, 1, 3, 8, 8, 14), "entry": (0, 1, 2, 3),
           "kind": (0, 1, 2, 3, 4), "position": (0, 1, 7, -1), "outer": (-3, -2, -1, 0, 1), "flags": (0, 1, 2)}
TIMES = ("NULL", "NULL", "NULL", "{ timeout_nanoseconds 1 }", "{ timeout_nanoseconds 600000000000 }", "{ cancel cancel }",
         "{ cancel NULL }", "{ timeout_nanoseconds -1 }", "{ samples 1 }")
STRUCTS = {"epl_engine_options": ("NULL", "{ threads 1 }", "{ threads -1 }", "{ log_level 7 }"),
           "epl_call_options": TIMES,
           "epl_source": ("NULL", "{ bytes 10 callbacks @fail:5 }", "{ bytes 40 callbacks @bytes:file }",
                          "{ bytes 100000000 callbacks @bytes:file }", "{ bytes 7 }"),
           "epl_op_options": ("NULL", '{ domain "own" name "Double" callbacks @count:op }', '{ name "Double" }'),
           "epl_model_options": ("NULL", "{ no_rewrites 1 }", "{ reserved 1 }"),
           "epl_adapter_options": ("NULL", "{ rank 2 }", "{ rank -2 }", "{ dropout 0.5 alpha 4 }"),
           "epl_plan_options": ("NULL", "NULL", "{ ranks 2 }", "{ ranks -1 }", '{ device "sim" }', '{ device "x" }',
                                "{ seed 18446744073709551615 }"),
           "epl_session_options": ("NULL", "NULL", "{ ranks 7 }", "{ first_rank -1 }", "{ slices 1 }")}


class Interface:
    def __init__(self, path):
        self.functions = {}
        for line in pathlib.Path(path).read_text().splitlines():
            kind, name, *rest = line.split()
            if kind == "function":
                arguments = self.functions[name] = []
            elif kind == "argument":
                arguments.append((name, *rest))


class Script:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = [f"# Seed {seed}.", *START.split("\n")]
        self.handles = {"epl_" + name: [name] for name in HANDLES}
        self.handles["epl_tensor"] = ["x", "target", "scores"]
        self.lent, self.written, self.made = [], set(), 0

    def pick(self, choices):
        return self.random.choice(list(choices))

    def chance(self, share):
        return self.random.random() < share

    def fresh(self, base):
        self.made += 1
        name = f"{base.removeprefix('epl_')}_{self.made}"
        self.handles.setdefault(base, []).append(name)
        return name

    def handle(self, base):
        if self.chance(0.04):
            return "NULL"
        if self.chance(0.03):
            base = self.pick(b for b, names in self.handles.items() if names and b != "epl_error")
        names = self.handles.get(base, []) + (self.lent if base == "epl_tensor" else [])
        return self.pick(names) if names else "NULL"

    def argument(self, function, name, base, role):
        if role == "handle":
            return self.handle(base)
        if role == "handles" and function.startswith("epl_dataset"):
            return "NULL"
        if role == "handles":
            right = "[ x ]" if name == "inputs" and "predict" in function else "[ x target ]"
            if name == "outputs":
                right = "[ scores ]"
                self.written.add("scores")
            return right if self.chance(0.8) else self.pick(("NULL", "[ ]", "[ x ]", "[ NULL ]", "[ target x ]"))
        if role == "struct":
            return self.pick(STRUCTS[base]) if base in STRUCTS else "NULL"
        if role == "structs":
            return self.pick(('[ { name "x" dtype EPL_DTYPE_F32 ndim 1 dims [ 4 ] } { name "target" dtype EPL_DTYPE_I64 } ]',
                              "NULL", "[ ]", '[ { name "x" } ]'))
        if role == "text":
            return "NULL" if self.chance(0.05) else f'"{self.pick(TEXTS[name])}"'
        if role == "bytes":
            return self.pick(("f32:1,2", "i64:1,0", "zeros:32", '""', "file", "NULL", "stream"))
        if role == "array":
            return self.pick(("NULL", "[ ]", "[ 2 ]", "[ 2 4 ]", "[ 2 4 ]", "[ -1 ]", "[ 4611686018427387904 4 ]"))
        if role == "callback":
            return self.pick(("NULL", "@fail:5", "@fail:99", f"@count:{name}", f"@count:{name}"))
        if base == "double":
            return self.pick(("0.5", "1", "0", "-1", "nan"))
        return str(self.pick(NUMBERS.get(name, (-1, 0, 0, 1, 2, 99))))

    def call(self, function, arguments):
        values = [self.argument(function, name, base, role) for name, base, role, kind, *_ in arguments
                  if kind in ("in", "hook")]
        if function in ("epl_session_save_to", "epl_session_export_to", "epl_plan_save_to") and self.chance(0.3):
            values[2 if "export" in function else 1] = "@collect:stream"
        targets, outputs = [], [a for a in arguments if a[3] == "out"]
        for name, base, role, kind, kept, owned in outputs:
            if role == "handles" and owned == "1":
                targets += [self.fresh(base) for _ in range(self.pick((1, 1, 1, 0, 2)))]
            elif role == "handles":
                # What a dataset lends lives until it is bound anew, so it is not used again.
                self.made += 2
                targets += [f"lent_{self.made}", f"lent_{self.made + 1}"]
            elif role == "handle" and base != "epl_text":
                targets.append(self.fresh(base))
        hidden = function in HIDDEN or (function == "epl_tensor_data" and values[0] in self.written)
        self.lines.append(" ".join(["~"] * hidden + [function, *values] + ["->"] * bool(targets) + targets))
        if function.endswith("_async"):  # until it is ready, nobody knows what another call gives
            self.lines.append(f"~ epl_event_wait {targets[0]} NULL")
        if function.endswith("_async") and "predict" in function:
            self.written.update(("x", "target", "scores"))

    def destroy(self, base):
        names = self.handles[base]
        name = names.pop(self.random.randrange(len(names)))
        self.lines.append(f"{base}_destroy {name}")

    def text(self, interface):
        drawn = [name for name in interface.functions
                 if name not in LEFT_OUT and not name.endswith(("_destroy", "_init"))
                 and not name.startswith(("epl_error", "epl_feed", "epl_store"))]
        for _ in range(CALLS):
            several = [base for base, names in self.handles.items() if len(names) > 1]
            if several and self.chance(0.1):
                self.destroy(self.pick(several))
            name = self.pick(drawn)
            self.call(name, interface.functions[name])
        for base, names in self.handles.items():
            self.random.shuffle(names)
            self.lines += [f"{base}_destroy {name}" for name in names]
        return "\n".join(self.lines + ["epl_live_handles"]) + "\n"


def text(table, seed):
    return Script(seed).text(Interface(table))


if __name__ == "__main__":
    print(text(sys.argv[1], int(sys.argv[2])), end="")
