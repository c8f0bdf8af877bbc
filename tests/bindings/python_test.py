"""The Python package: NumPy and DLPack in and out, errors, deadlines, and that nothing is left behind.

    PYTHONPATH=bindings/python EPL_LIBRARY=libepl.so python3 python_test.py FOLDER
"""
import gc
import pathlib
import sys
import threading
import unittest

import epl
import numpy as np

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
X = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
TARGET = (X[:, 0] < X[:, 3]).astype(np.int64)


def world(**engine):
    engine = epl.Engine(threads=1, **engine)
    path = str(FOLDER / "mlp é.onnx")
    engine.write_template("mlp", {"sizes": [4, 8, 2], "seed": 1}, path)
    model = epl.Model(engine, path)
    trainer = epl.Trainer(engine, {"optimizer": "adam", "optimizer.lr": 0.05, "symbols": {"batch": 8}})
    return engine, model, epl.Plan(model, trainer)


class Package(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(epl.live_handles(), 0)

    def test_trains_by_position_and_by_name(self):
        _, _, plan = world()
        names = list(plan.ports())
        self.assertEqual(plan.ports()[names[0]], ("f32", (8, 4)))
        one, other = epl.Session(plan), epl.Session(plan)
        for step in range(1, 31):
            metrics = one.step([X, TARGET])
            self.assertEqual(metrics.step, step)
            self.assertEqual(other.step({names[1]: TARGET, names[0]: X}).loss, metrics.loss)
        self.assertLess(metrics.loss, one.evaluate([X, TARGET]).loss + 1)
        self.assertLess(one.evaluate([X, TARGET]).loss, 0.5)
        self.assertEqual(one.hash(), other.hash())
        with self.assertRaisesRegex(ValueError, "the inputs are"):
            one.step({"y": X, names[1]: TARGET})

    def test_predictions_and_parameters_are_views(self):
        _, _, plan = world()
        session = epl.Session(plan)
        (scores,) = session.predict([X]).values()
        array = scores.numpy()
        self.assertEqual((array.shape, array.dtype, scores.shape), ((8, 2), np.float32, (8, 2)))
        del scores
        gc.collect()
        self.assertTrue(np.isfinite(array).all())  # the view keeps the tensor
        name = session.parameters()[0]
        weights = session.get(name).numpy().copy()
        session.set(name, weights * 2)
        np.testing.assert_array_equal(session.get(name).numpy(), weights * 2)

    def test_dlpack_goes_both_ways(self):
        engine, *_ = world()
        tensor = epl.Tensor(engine, X)
        self.assertEqual(tensor.data(), X.ctypes.data)  # no copy
        again = np.from_dlpack(tensor)
        self.assertEqual(again.ctypes.data, X.ctypes.data)
        np.testing.assert_array_equal(again, X)
        tensor.__dlpack__(max_version=(1, 0))  # a capsule that nobody takes gives its tensor back

        class Other:  # what has DLPack alone
            def __dlpack__(self, **keywords):
                return X.__dlpack__(**keywords)
        taken = epl.Tensor(engine, Other())
        self.assertEqual((taken.data(), taken.shape), (X.ctypes.data, (8, 4)))

    def test_every_element_type(self):
        engine, *_ = world()
        for name in ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"):
            array = np.ones((2, 3), name)
            np.testing.assert_array_equal(epl.Tensor(engine, array).numpy(), array)
            self.assertEqual(epl.Tensor(engine, array).numpy().dtype, array.dtype)
        with self.assertRaises(TypeError):
            epl.Tensor(engine, np.ones(2, "c8"))
        with self.assertRaises(TypeError):
            epl.Tensor(engine, [1.0])
        with self.assertRaisesRegex(ValueError, "row-major"):
            epl.Tensor(engine, X.T)

    def test_errors_have_a_code(self):
        engine, model, plan = world()
        with self.assertRaises(epl.Error) as raised:
            epl.Model(engine, "/no/such/modél.onnx")
        self.assertEqual(raised.exception.code, epl.ERROR_NOT_FOUND)
        self.assertIn("modél", str(raised.exception))
        with self.assertRaises(epl.Error) as raised:
            epl.Trainer(engine, {"optimiser": "sgd"})
        self.assertIn("optimizer", str(raised.exception))
        with self.assertRaises(TypeError):
            epl.Plan(model, None, None, {"rank": 2})
        with self.assertRaisesRegex(TypeError, 'options={"ranks": ...}'):
            epl.Plan(model, ranks=2)
        plan.close()
        with self.assertRaises(ValueError):
            epl.Session(plan)

    def test_cancel_and_checkpoint(self):
        engine, _, plan = world()
        session = epl.Session(plan)
        session.step([X, TARGET], timeout=60)
        with epl.Cancel(engine) as cancel:
            cancel.trigger()
            with self.assertRaises(epl.Error) as raised:
                session.step([X, TARGET], cancel=cancel)
        self.assertEqual(raised.exception.code, epl.ERROR_CANCELLED)
        self.assertEqual(session.steps(), 1)
        session.save(FOLDER / "checkpoint")
        other = epl.Session(plan)
        other.load(FOLDER / "checkpoint")
        self.assertEqual((other.steps(), other.hash()), (1, session.hash()))

    def test_log_and_what_it_holds(self):
        lines = []
        engine, model, plan = world(log=lambda level, message: lines.append((level, message)), log_level=epl.LOG_DEBUG)
        inputs = [epl.Tensor(engine, X), epl.Tensor(engine, TARGET)]
        engine.close()  # the session logs on
        session = epl.Session(plan)
        worker = threading.Thread(target=session.step, args=(inputs,))
        worker.start()
        worker.join()
        self.assertTrue(lines)
        self.assertEqual(len(epl._core._held), 1)
        del engine, model, plan, session, worker, inputs
        gc.collect()
        self.assertEqual(len(epl._core._held), 0)

    def test_dataset_and_evaluation(self):
        engine, model, plan = world()
        path = FOLDER / "data.csv"
        path.write_text("x0,x1,x2,x3,target\n" + "".join(
            ",".join(map(str, [*row, label])) + "\n" for row, label in zip(X, TARGET)))
        dataset = epl.Dataset(engine, path, {"batch": 8, "input": next(iter(plan.ports()))})
        dataset.bind(plan)
        session = epl.Session(plan)
        before = session.step([X, TARGET]).loss
        for _ in range(20):
            for batch in dataset:
                loss = session.step(batch).loss
        self.assertLess(loss, before)
        evaluation = epl.Evaluation(plan, "accuracy")
        evaluation.add_dataset(session, dataset, 0)
        self.assertEqual(evaluation.samples(), 8)
        self.assertGreater(evaluation.result("accuracy"), 0.5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
