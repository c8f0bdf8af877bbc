"""Element types that the standard does not have for an operand are refused by name, not computed as something else.

    python tests/python/refused_types_test.py [OPERATOR...]

The models are those of the official node tests, one of each operator and number of operands. Each operand in turn is
declared to be of each type that no version of the operator takes there, and the engine must refuse to plan the model.
Prints `N passed, N failed, N skipped` as its last line; skipped are operators that are refused with their own types.
"""
import sys

import onnx
from onnx import TensorProto

import epl_api
from node_test import collect, with_constants

TYPES = {"int32": TensorProto.INT32, "int64": TensorProto.INT64, "int16": TensorProto.INT16,
         "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL, "float": TensorProto.FLOAT}
REALS = ("float", "double", "float16", "bfloat16")
FEWEST = 400  # operands and types; were there fewer, the node tests would not have been found


def takes(name, k, dtype):
    for schema in onnx.defs.get_all_schemas_with_history():
        if (schema.domain, schema.name) != ("", name) or schema.deprecated or not schema.inputs:
            continue
        given = schema.inputs[min(k, len(schema.inputs) - 1)]
        constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        allowed = constraints.get(given.type_str, [given.type_str])
        if any(f"tensor({t})" in allowed for t in (REALS if dtype == "float" else (dtype,))):
            return True
    return False


def plans(api, model):
    try:
        api.plan(api.model_bytes(model.SerializeToString()), None)
        return True
    except Exception:
        return False


def models():
    """One of each operator and number of operands that the engine plans."""
    found = {}
    for case in collect():
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].domain or any(i.type.WhichOneof("value") != "tensor_type"
                                                               for i in graph.input):
            continue
        found.setdefault((graph.node[0].op_type, len(graph.node[0].input)), []).append(case)
    return found


def constants_of(case):
    inputs = {i.name: onnx.numpy_helper.to_array(a) if isinstance(a, TensorProto) else a
              for i, a in zip(case.model.graph.input, case.data_sets[0][0])}
    return with_constants(case.model, inputs)


def retyped(model, name, code):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for i in copy.graph.input:
        if i.name == name:
            i.type.tensor_type.elem_type = code
            return copy
    return None


def main():
    api = epl_api.Api()
    passed = failed = skipped = 0
    for (op, _), cases in sorted(models().items()):
        if sys.argv[1:] and op not in sys.argv[1:]:
            continue
        candidates = (m for case in cases for m in (case.model, constants_of(case)) if m is not None)
        model = next((m for m in candidates if plans(api, m)), None)
        if model is None:
            skipped += 1
            continue
        for k, name in enumerate(model.graph.node[0].input):
            for dtype, code in TYPES.items():
                other = retyped(model, name, code)
                if other is None or takes(op, k, dtype):
                    continue
                try:
                    api.plan(api.model_bytes(other.SerializeToString()), None)
                except Exception as error:
                    assert str(error), "a refusal without a reason"
                    passed += 1
                else:
                    print(f"FAILED {op}: input {k} is {dtype}, and is computed")
                    failed += 1
    if not sys.argv[1:] and passed + failed < FEWEST:
        print(f"FAILED: {passed + failed} operands and types, expected {FEWEST}")
        failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
