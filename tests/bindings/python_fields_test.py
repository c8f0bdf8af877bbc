"""The Python package: fields of structs, numbers of calls, and what calls write, over all that the interface has.

    PYTHONPATH=bindings/python EPL_LIBRARY=libepl.so python3 python_fields_test.py FOLDER
"""
import ast
import ctypes as c
import inspect
import math
import pathlib
import sys
import unittest

import epl
import numpy as np
from epl import _objects, _raw

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
STRUCTS = [each for each in vars(_raw).values()
           if inspect.isclass(each) and issubclass(each, _raw.Struct) and each is not _raw.Struct]
FLOATS = (c.c_double, c.c_float)


def lengths(struct):
    return {name + "_length" for name in struct._texts_}


class Box:
    """Of NumPy's kind: a number that says so."""
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Fields(unittest.TestCase):
    def refused(self, error, struct, name, value):
        for what in (lambda: struct(**{name: value}), lambda: setattr(struct(), name, value)):
            with self.subTest(struct=struct.__name__, field=name, value=str(value)[:20]), \
                    self.assertRaises(error) as raised:
                what()
            self.assertIn(f"{name} of {struct.__name__}", str(raised.exception))
            self.assertLess(len(str(raised.exception)), 250)

    def test_numbers(self):
        count = 0
        for struct in STRUCTS:
            for name, of in struct._fields_:
                if of not in _raw.NUMBERS or name in lengths(struct):
                    continue
                count += 1
                for text in ("5", b"5", "x", "x" * 1000, "\x1b\u202e", None, [1], {}):
                    self.refused(TypeError, struct, name, text)
                if of in FLOATS:
                    self.assertEqual(getattr(struct(**{name: np.float32(0.5)}), name), 0.5)
                    continue
                for wrong in (1.5, math.nan, np.float64(2)):
                    self.refused(TypeError, struct, name, wrong)
                least, greatest = _raw.bounds(of)
                for wrong in (least - 1, greatest + 1, 2**70, -2**70):
                    self.refused(ValueError, struct, name, wrong)
                for right in (least, greatest, np.int64(7), Box(7), True):
                    self.assertEqual(getattr(struct(**{name: right}), name), int(getattr(right, "number", right)))
        self.assertGreater(count, 60)

    def test_the_range_is_said(self):
        with self.assertRaisesRegex(ValueError, "^memory_bytes of EngineOptions is an integer from 0 to "
                                    "18446744073709551615, not -1"):
            epl.Engine(memory_bytes=-1)
        with self.assertRaisesRegex(TypeError, "^threads of EngineOptions is an integer from -2147483648 to .*, not '2'"):
            epl.Engine(threads="2")

    def test_texts_and_their_lengths(self):
        count = 0
        for struct in STRUCTS:
            for name in struct._texts_:
                count += 1
                for wrong in (3, 1 << 40, 1.5, ["x"], True):
                    self.refused(TypeError, struct, name, wrong)
                self.refused(TypeError, struct, name + "_length", 3)
                for right in ("a\0b", b"a\0b"):
                    made = struct(**{name: right})
                    self.assertEqual(_raw.Struct.text(made, name), "a\0b")
                    setattr(made, name, None)
                    self.assertEqual((getattr(made, name), getattr(made, name + "_length")), (None, 0))
                self.assertEqual(_raw.Struct.text(struct(**{name: pathlib.Path("p")}), name), "p")
        self.assertGreater(count, 8)

    def test_functions_memory_and_lists(self):
        for struct in STRUCTS:
            for name, of in struct._fields_:
                if of in _raw.NUMBERS or name in struct._texts_:
                    continue
                self.refused(TypeError, struct, name, "x")
                self.refused(TypeError, struct, name, b"x")
                self.refused(TypeError, struct, name, 1.5)
                if issubclass(of, c.Array):
                    self.refused(TypeError, struct, name, ["5"])
                    self.refused(ValueError, struct, name, [2**70])
                    self.refused(ValueError, struct, name, [0] * (of._length_ + 1))
                    self.assertEqual(list(getattr(struct(**{name: [3]}), name))[:2], [3, 0])
                if name in struct._handles_:
                    self.refused(TypeError, struct, name, 3)
                    with epl.Engine(threads=1) as engine:
                        self.refused(TypeError, struct, name, engine)

    def test_calls(self):
        with epl.Engine(threads=1) as engine:
            trainer = epl.Trainer(engine)
            for wrong, error in (("8", TypeError), (2**70, ValueError), (1.5, TypeError), (None, TypeError)):
                with self.assertRaisesRegex(error, "^size is an integer from -9"):
                    trainer.bind_symbol("batch", wrong)
                with self.assertRaisesRegex(error, "element 1 is an integer from -9"):
                    epl._core.array(c.c_int64, [1, wrong])
            with self.assertRaisesRegex(TypeError, "^value is a number, not '0.1'"):
                trainer.set_number("optimizer.lr", "0.1")
            for wrong, error in (("1", TypeError), (math.nan, ValueError), ([1], TypeError)):
                with self.assertRaisesRegex(error, "^timeout is a number"):
                    epl._core.call_options({"timeout": wrong})
            self.assertTrue(epl._core.call_options({"timeout": math.inf}))
            with self.assertRaisesRegex(TypeError, "^cancel of CallOptions is an object of kind cancel, not 5"):
                epl._core.call_options({"cancel": 5})

    def test_texts_of_structs_live_as_long_as_the_structs(self):
        made, count = epl._core.structs(_raw.TensorInfo, [{"name": "x" * 100}, {"name": "y" * 100}])
        others = [c.create_string_buffer(b"z" * 100, 101) for _ in range(1000)]
        self.assertEqual([_raw.Struct.text(each, "name") for each in made[:count]], ["x" * 100, "y" * 100])
        del others


class Said(unittest.TestCase):
    """Settings are refused where they are given, with what they may be."""

    def test_of_a_trainer(self):
        with epl.Engine(threads=1) as engine:
            for settings, said in (
                    ({"optimizer": "adam", "optimizer.betas": [0.9]}, "optimizer adam: option betas holds two numbers"),
                    ({"optimizer": "adam", "optimizer.betas": [0.9] * 3}, "holds two numbers, got 3"),
                    ({"groups": [{"match": "*", "betas": [0.9]}]}, "holds two numbers, got 1"),
                    ({"groups": [{"match": "*", "zzz": 1}]}, 'an optimizer has no option "zzz"'),
                    ({"groups": [{"match": "*", "weight_decai": 1}]}, "did you mean weight_decay"),
                    ({"optimizer": "sgd", "optimizer.zzz": 1}, 'optimizer sgd has no option "zzz"'),
                    ({"schedule.zzz": 1}, 'has no option "zzz"'), ({"loss.zzz": 1}, 'has no option "zzz"')):
                with self.subTest(settings=settings), self.assertRaises(epl.Error) as raised:
                    epl.Trainer(engine, settings)
                self.assertIn(said, str(raised.exception))
            # Of a row that may be chosen later.
            trainer = epl.Trainer(engine)
            trainer.set("optimizer.betas", "0.9,0.99")
            trainer.set("optimizer", "adam")

    def test_of_data(self):
        path = FOLDER / "said.npz"
        np.savez(path, x=np.zeros((8, 4), np.float32))
        with epl.Engine(threads=1) as engine:
            for options, said in (({"held_out": 1}, "a share from 0 to below 1"), ({"batch": -1}, "1 or more"),
                                  ({"seed": 2**64 - 1}, "an integer from -9223372036854775808 to 9223372036854775807"),
                                  ({"seed": 2**63}, "to 9223372036854775807 is expected")):
                with self.subTest(options=options), self.assertRaises(epl.Error) as raised:
                    epl.Dataset(engine, path, {"batch": 8, **options})
                self.assertIn(said, str(raised.exception))


class Written(unittest.TestCase):
    def test_what_a_call_writes_is_returned(self):
        found = 0
        for function in ast.walk(ast.parse(inspect.getsource(_objects))):
            if not isinstance(function, ast.FunctionDef):
                continue
            made = {target.id for node in ast.walk(function) if isinstance(node, ast.Assign) for target in node.targets
                    if isinstance(target, ast.Name) and target.id.endswith("_out")}
            given = {node.id for statement in ast.walk(function) if isinstance(statement, ast.Return)
                     for node in ast.walk(statement) if isinstance(node, ast.Name)}
            self.assertLessEqual(made, given, function.name)
            if made:
                self.assertNotEqual(ast.unparse(function.returns), "None", function.name)
            found += len(made)
        self.assertGreater(found, 60)

    def test_progress(self):
        engine, path = epl.Engine(threads=1), FOLDER / "fields.onnx"
        engine.write_template("mlp", {"sizes": [4, 8, 2], "seed": 1}, path)
        plan = epl.Plan(epl.Model(engine, path), epl.Trainer(engine, {"symbols": {"batch": 8}}))
        with epl.Session(plan) as session:
            before = session.progress()
            self.assertTrue(before.step == 0 and math.isnan(before.loss))
            batch = [np.ones((8, 4), np.float32), np.zeros(8, np.int64)]
            for step in (1, 2):
                loss, now = session.step(batch).loss, session.progress()
                self.assertEqual((now.step, now.loss), (step, loss))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
