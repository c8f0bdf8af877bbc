"""The Python package: NumPy and DLPack in and out, errors, deadlines, and that nothing is left behind.

    PYTHONPATH=bindings/python EPL_LIBRARY=libepl.so python3 python_test.py FOLDER
"""
import gc
import json
import pathlib
import shutil
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

    def test_what_lies_on_a_gpu_is_for_sessions_there(self):
        engine, _, plan = world()
        session = epl.Session(plan)
        asked = []

        class OnGpu:  # says so; nobody reads it
            def __dlpack_device__(self):
                return 2, 3

            def __dlpack__(self, **keywords):
                asked.append(keywords.pop("stream"))
                capsule = X.__dlpack__(**keywords)
                address = epl._tensor._api.PyCapsule_GetPointer(capsule, epl._tensor.CAPSULE)
                managed = epl._tensor._Managed.from_address(address)
                managed.device_type, managed.device_id = self.__dlpack_device__()
                return capsule
        taken = epl.Tensor(engine, OnGpu())
        self.assertEqual(asked, [1])  # the legacy default stream
        self.assertEqual((taken.device(), taken.data(), taken.shape), (epl.DEVICE_CUDA, None, (8, 4)))
        self.assertEqual(taken.__dlpack_device__(), (2, 3))
        with self.assertRaisesRegex(ValueError, "on a GPU"):
            taken.numpy()
        for given in (taken, OnGpu()):
            with self.assertRaisesRegex(epl.Error, "lies on cuda:3, and the session is on cpu"):
                session.step([given, TARGET], stream=-1)
            with self.assertRaisesRegex(epl.Error, "lies on cuda:3"):
                session.predict([given])
        with self.assertRaisesRegex(epl.Error, "stream is -2"):
            session.step([X, TARGET], stream=-2)
        self.assertEqual(session.step([X, TARGET], stream=5).step, 1)

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

    def fitting(self, engine):
        rows = np.random.default_rng(1).standard_normal((40, 4), dtype=np.float32)
        kinds = (rows[:, 0] < rows[:, 3]).astype(np.int64)
        options = {"batch": 8, "order": "shuffled", "held_out": 0.2}
        make = lambda split: epl.Dataset.of_arrays(engine, {"x": rows, "target": kinds}, {**options, "split": split})
        return make("train"), make("held_out")

    def test_fit_and_going_on(self):
        engine, model, _ = world()
        data, held_out = self.fitting(engine)
        events, trainer = [], {"optimizer": "adam", "optimizer.lr": 0.05, "schedule": "cosine"}
        whole = epl.fit(model, data, held_out, trainer=trainer, epochs=4, metrics="accuracy", progress=events.append)
        self.assertEqual((whole.ended, whole.step), ("steps", 16))
        self.assertEqual([e.step for e in events if e.kind == "step"], list(range(1, 17)))
        self.assertEqual([e.step for e in events if e.kind == "measured"], [4, 8, 12, 16])
        self.assertIn("accuracy", whole.metrics)
        self.assertEqual(whole.metrics["loss"], whole.event.held_out_loss)
        folder, settings = str(FOLDER / "fit run"), {"steps": 16, "metrics": "accuracy", "resume": "auto"}
        first, second = self.fitting(engine), self.fitting(engine)
        part = epl.fit(model, *first, trainer=trainer, folder=folder, progress=lambda e: e.step < 7, **settings)
        self.assertEqual((part.ended, part.step), ("stopped", 7))
        rest = epl.fit(model, *second, trainer=trainer, folder=folder, **settings)
        self.assertEqual(rest.session.hash(), whole.session.hash())
        self.assertEqual(rest.checkpoint, epl.checkpoint_find(engine, folder))

    def test_a_last_save_that_fails_loses_nothing(self):
        engine, model, _ = world()
        whole = epl.fit(model, self.fitting(engine)[0], steps=4)
        folder = FOLDER / "full run"

        def full(event):
            if event.step == 4 and event.kind == "step":
                shutil.rmtree(folder / "checkpoints", ignore_errors=True)
                (folder / "checkpoints").write_text("no folder")

        def thrown(event):
            if event.step == 4:
                raise KeyboardInterrupt

        for ends, kind in ((full, epl.Error), (thrown, KeyboardInterrupt)):
            with self.assertRaises(kind) as caught:
                epl.fit(model, self.fitting(engine)[0], steps=4, folder=str(folder), progress=ends, overwrite=True)
            session = caught.exception.session
            self.assertEqual((session.steps(), session.hash()), (4, whole.session.hash()))
            session.save(str(FOLDER / "elsewhere"))
            shutil.rmtree(folder)

    def test_a_timeout_is_that_of_the_whole_job(self):
        engine, model, _ = world()
        folder = str(FOLDER / "timed run")
        with self.assertRaises(epl.Error) as caught:
            epl.fit(model, self.fitting(engine)[0], steps=1 << 40, folder=folder, timeout=0.2)
        self.assertEqual(caught.exception.code, epl.ERROR_DEADLINE_EXCEEDED)
        self.assertEqual(epl.checkpoint_find(engine, folder), folder + "/checkpoint")

    def test_a_job_ends_as_its_loop_does(self):
        engine, _, plan = world()
        data, _ = self.fitting(engine)
        session, token = epl.Session(plan), epl.Cancel(engine)
        with self.assertRaisesRegex(epl.Error, "did you mean steps"):
            epl.Job(engine, stps=3)
        folder = str(FOLDER / "job run")
        with epl.Job(engine, steps=100, folder=folder) as job:
            job.start(session, data)
            for event in job:
                if event.step == 3:
                    break
            del event
            gc.collect()
            self.assertEqual(job.describe()["ended"], "cancelled")
        with epl.Job(engine, steps=100, folder=folder, resume="auto") as job:
            job.start(session, data)
            with self.assertRaises(epl.Error) as caught:
                for event in job.events(cancel=token):
                    token.trigger()
            self.assertEqual(caught.exception.code, epl.ERROR_CANCELLED)
            self.assertEqual(epl.checkpoint_find(engine, folder), folder + "/checkpoint")
        self.assertEqual(session.steps(), 4)

    def test_the_page(self):
        engine, model, _ = world()
        rows = "".join(f"{i % 2},{i % 3},{i % 5},0,{i % 2}\n" for i in range(80))
        pathlib.Path("rows.csv").write_text("a,b,c,d,y\n" + rows)
        options = {"batch": 8, "classes": True, "held_out": 0.2}  # a fifth of the rows is not trained on
        data = epl.Dataset(engine, "rows.csv", {**options, "split": "train", "order": "shuffled"})
        held_out = epl.Dataset(engine, "rows.csv", {**options, "split": "held_out", "partial": True})
        fitted = epl.fit(model, data, held_out, trainer={"optimizer": epl.optimizers.AdamW(lr=0.05), "clip_norm": 1},
                         epochs=10, folder="run", resume="auto", patience=3, metrics="accuracy", restore_best=True,
                         progress=lambda event: print(event.kind, event.step, event.loss, event.metrics))
        print(fitted.ended, fitted.metrics["accuracy"], fitted.best_checkpoint)
        fitted.session.export_onnx("best.onnx")
        self.assertIn(fitted.ended, ("steps", "patience"))
        self.assertTrue(pathlib.Path("best.onnx").exists())

    def test_settings_of_every_row(self):
        """With all their options given, as the library itself describes them."""
        engine, model, _ = world()
        listed, values = json.loads(engine.describe()), {"step_size": 3, "gamma": 0.5}
        for kind, module in (("optimizer", epl.optimizers), ("loss", epl.losses), ("schedule", epl.schedules)):
            classes = {c.NAME: c for c in vars(module).values() if isinstance(c, type) and getattr(c, "NAME", "")}
            rows = {row["name"]: row["options"] for row in listed["losses" if kind == "loss" else kind + "s"]}
            self.assertEqual(set(classes), set(rows))
            for name, options in rows.items():
                given = {option: values.get(option) if value is None else value for option, value in options.items()}
                setting = classes[name](**given)
                described = json.loads(epl.Trainer(engine, {kind: setting}).describe())
                self.assertEqual(described[kind], name)
                self.assertEqual({key for key in described if key.startswith(kind + ".")},
                                 {f"{kind}.{option}" for option in options})
                if kind == "optimizer":  # the types are looked at when a plan is made
                    epl.Plan(model, epl.Trainer(engine, {kind: setting, "symbols": {"batch": 8}}))
        with self.assertRaisesRegex(TypeError, "unexpected keyword"):
            epl.optimizers.AdamW(lrr=0.1)
        told = epl.Job(engine, steps=3, keep=4, monitor="loss").describe()["settings"]
        self.assertEqual(set(told), set(epl._settings.JobSettings.__annotations__))
        self.assertEqual((told["steps"], told["keep"], told["patience"]), (3, 4, 0))

    def test_no_order_loses_a_setting(self):
        """Each key of a trainer whose name is like that of an option, given before its row and after it."""
        rows = {"loss": epl.losses.MSE(), "optimizer": epl.optimizers.SGD(), "schedule": epl.schedules.Constant()}
        self.assertGreater(len(epl._settings.DOTTED), 3)
        for field, key in epl._settings.DOTTED.items():
            for name in (field, key):
                for settings in ({name: 1, **rows}, {**rows, name: 1}):
                    self.assertEqual(epl._settings.trainer_keys(settings)[key], 1)
                    self.assertLessEqual(set(rows), set(epl._settings.trainer_keys(settings)))

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
