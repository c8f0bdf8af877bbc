"""The Python package: what calls take in place of tensors, and what the host gives: files, samples, operators, events.

    PYTHONPATH=bindings/python EPL_LIBRARY=libepl.so python3 python_values_test.py FOLDER
"""
import asyncio
import copy
import dataclasses
import gc
import inspect
import io
import math
import pathlib
import pickle
import sys
import threading
import unittest

import epl
import numpy as np

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
X = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
TARGET = (X[:, 0] < X[:, 3]).astype(np.int64)
# One batch in the ways in which Python's users have it; all mean the same bits.
SPELLINGS = [
    ("arrays", [X, TARGET]), ("a dictionary", {"target": TARGET, "x": X}), ("lists", [X.tolist(), TARGET.tolist()]),
    ("float64 and int32", [X.astype(np.float64), TARGET.astype(np.int32)]),
    ("not row-major", [np.asfortranarray(X), np.repeat(TARGET, 2)[::2]]),
    ("booleans", [X, TARGET.astype(bool)]),
    ("read-only", [np.frombuffer(X.tobytes(), np.float32).reshape(8, 4), TARGET])]


def world(**settings):
    engine = epl.Engine(threads=1)
    path = FOLDER / "values.onnx"
    engine.write_template("mlp", {"sizes": [4, 8, 2], "seed": 1}, path)
    model = epl.Model(engine, path)
    trainer = epl.Trainer(engine, {"optimizer": "adam", "optimizer.lr": 0.05, "symbols": {"batch": 8}, **settings})
    return engine, model, epl.Plan(model, trainer)


class Values(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(epl.live_handles(), 0)
        self.assertEqual(epl._core._held, {})

    def test_bfloat16_of_another_library_is_widened(self):
        engine, _, plan = world()
        session, ones = epl.Session(plan), epl._tensor.of(engine, np.ones((8, 4)), epl.DTYPE_BF16)

        class Lent:
            """What PyTorch gives, say."""
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **keywords):
                return self.tensor.__dlpack__(**keywords)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()
        self.assertEqual(session.evaluate([Lent(ones), TARGET]).loss,
                         session.evaluate([np.ones((8, 4), np.float32), TARGET]).loss)
        exact = np.array([1.5, -0.0, 2**-130, 3e38, np.inf], np.float32)
        for values in (exact, np.zeros((2, 0, 3), np.float32), np.float32(2)):
            narrow = epl._tensor.of(engine, values, epl.DTYPE_BF16)
            wide = epl._tensor.of(engine, Lent(narrow), epl.DTYPE_F32).numpy()
            np.testing.assert_array_equal(wide, np.asarray(epl._tensor._widened(np, narrow)))
            self.assertEqual(wide.shape, np.shape(values))
            np.testing.assert_allclose(wide, values, rtol=2**-8)
        with self.assertRaisesRegex(TypeError, "has elements i64"):
            session.evaluate([np.ones((8, 4), np.float32), Lent(epl._tensor.of(engine, np.ones(8), epl.DTYPE_BF16))])

    def calls(self, engine, plan):
        """Every call that takes inputs, by its name: a function of a batch that gives something to compare."""
        session, feed = epl.Session(plan), epl.Feed(engine, {"x": ("f32", (8, 4)), "target": ("i64", (8,))})
        fed, evaluation = epl.Dataset.of_feed(feed), epl.Evaluation(plan, "accuracy")
        predictor, into = epl.Predictor(session), np.zeros((8, 2), np.float32)

        def of_x(function):
            return lambda batch: function([batch["x"]] if isinstance(batch, dict) else batch[:1])

        def added(batch):
            evaluation.reset()
            evaluation.add(session, batch)
            return evaluation.result("loss")

        def pushed(batch):
            feed.push(batch)
            return session.evaluate(fed.next()).loss

        def written(function):
            return lambda batch: (function(batch, [into]), into.tolist())[1]

        def waited(event):
            event.wait()
            return next(iter(event.outputs.values())).tolist()

        def stepped(step):
            def again(batch):
                new = epl.Session(plan)
                step(new, batch)
                return new.hash()
            return again

        def first(found):
            return next(iter(found.values())).tolist()
        return {
            "Session.step": stepped(lambda new, batch: new.step(batch)),
            "Session.step_async": stepped(lambda new, batch: new.step_async(batch).wait()),
            "Session.gradients": stepped(lambda new, batch: (new.gradients(batch), new.apply())),
            "Session.evaluate": lambda batch: session.evaluate(batch).loss,
            "Session.evaluate_async": lambda batch: session.evaluate_async(batch).wait().loss,
            "Session.predict": of_x(lambda batch: first(session.predict(batch))),
            "Session.predict_async": of_x(lambda batch: waited(session.predict_async(batch))),
            "Session.predict_into": of_x(written(session.predict_into)),
            "Predictor.predict": of_x(lambda batch: first(predictor.predict(batch))),
            "Predictor.predict_into": of_x(written(predictor.predict_into)),
            "Evaluation.add": added,
            "Feed.push": pushed}

    def test_every_call_takes_every_spelling(self):
        engine, _, plan = world(keep_gradients=True)
        calls = self.calls(engine, plan)
        for name, call in calls.items():
            wanted = call([epl.Tensor(engine, X), epl.Tensor(engine, TARGET)])
            for spelling, batch in SPELLINGS:
                with self.subTest(call=name, spelling=spelling):
                    self.assertEqual(call(batch), wanted)
        # No call that takes tensors is left out: the generated layer says which there are.
        taking = {f"{kind}.{name}" for kind, cls in vars(epl._objects).items() if inspect.isclass(cls)
                  for name, function in vars(cls).items() if callable(function)
                  and {"inputs", "tensors"} & set(inspect.signature(function).parameters)}
        self.assertEqual(taking, set(calls))

    def test_what_does_not_fit_is_named(self):
        engine, _, plan = world()
        session = epl.Session(plan)
        for batch, said in ((["a", TARGET], 'input "x" has elements f32; given was a str'),
                            ([X, TARGET + 0.5], 'input "target" has elements i64; given was an array of float64'),
                            ([X], "there are 2 inputs"), ([X.astype("c8"), TARGET], "given was an array of complex64")):
            with self.assertRaisesRegex((TypeError, ValueError), said):
                session.step(batch)
        with self.assertRaisesRegex(TypeError, "input \"target\" has elements i64"):
            session.step([X, np.full(8, 2**63, np.uint64)])

    def test_more_and_fewer_samples_than_a_batch_are_predicted(self):
        _, _, plan = world()
        session = epl.Session(plan)
        many = np.concatenate([X, X * 2, X[:3]])
        found = next(iter(session.predict([many]).values())).numpy()
        self.assertEqual(found.shape, (19, 2))
        for begin in range(19):
            alone = next(iter(session.predict([many[begin:begin + 1]]).values())).numpy()
            np.testing.assert_array_equal(found[begin:begin + 1], alone)

    def test_numbers_of_the_state(self):
        engine, _, plan = world()
        session = epl.Session(plan)
        name = next(name for name in session.parameters() if session.get(name).ndim() == 1)
        session.set(name, list(range(len(session.get(name)))))
        self.assertEqual(session.get(name).tolist(), [float(i) for i in range(len(session.get(name)))])

    def test_bfloat16_is_rounded_to_the_nearest(self):
        values = np.array([1.0, 1.00390625, 1.01171875, -3e38, np.inf, np.nan, 1e-40, 0.1], np.float32)
        engine = epl.Engine()
        tensor = epl._tensor.of(engine, values, epl.DTYPE_BF16)
        bits = epl._tensor.converted(np, values, epl.DTYPE_BF16, "x")
        self.assertEqual(tensor.dtype(), epl.DTYPE_BF16)
        # 1 + 2^-8 and 1 + 3 * 2^-8 lie between two numbers of bfloat16: to the even one (IEEE 754).
        self.assertEqual(bits.tolist()[:5], [0x3F80, 0x3F80, 0x3F82, 0xFF62, 0x7F80])
        self.assertEqual((bits[5] & 0x7F80, bits[5] & 0x7F != 0, bits[6]), (0x7F80, True, 1))

    def test_without_numpy(self):
        engine, _, plan = world()
        session, found = epl.Session(plan), epl._tensor._numpy
        wanted = session.evaluate([X, TARGET]).loss
        epl._tensor._numpy = lambda: None
        try:
            self.assertEqual(session.evaluate([X.tolist(), TARGET.tolist()]).loss, wanted)
            with self.assertRaisesRegex(TypeError, "not of one length"):
                session.evaluate([[[1.0], [1.0, 2.0]], TARGET.tolist()])
        finally:
            epl._tensor._numpy = found

    def test_handles_are_one_object(self):
        _, model, plan = world()
        session = epl.Session(plan)
        for refused in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "cannot be copied"):
                refused(session)
        self.assertEqual(repr(session), "<epl.Session after 0 steps>")
        self.assertEqual(repr(session.get(session.parameters()[0]))[:16], "<epl.Tensor f32[")
        self.assertIn("loss=", repr(session.step([X, TARGET])))
        self.assertIn("name='x'", repr(model.port(epl.PORT_INPUT, 0)))
        self.assertEqual(model.ports()["x"], ("f32", ("batch", 4)))
        trainer = epl.Trainer(model.engine, {"symbols": {"batch": 8}})
        info = epl.Plan(model, trainer).port(epl.ENTRY_TRAIN, epl.PORT_INPUT, 0)
        gc.collect()
        self.assertEqual(info.text("name"), "x")  # it keeps the plan, whose text this is
        session.close()
        self.assertEqual(repr(session), "<epl.Session, closed>")
        with self.assertRaisesRegex(ValueError, "closed"):
            session.steps()

    def test_objects_say_what_they_are(self):
        engine, model, plan = world()
        self.assertEqual(repr(model), "<epl.Model x f32[batch,4] -> logits f32[batch,2]>")
        self.assertEqual(repr(plan), "<epl.Plan for 1 rank of x f32[8,4], target i64[8]>")
        self.assertEqual(repr(engine), "<epl.Engine>")
        session = epl.Session(plan)
        evaluation = epl.Evaluation(plan, "accuracy")
        evaluation.add(session, [X, TARGET])
        self.assertEqual(repr(evaluation), "<epl.Evaluation of 8 samples>")
        data = epl.Dataset.of_arrays(engine, {"x": X, "target": TARGET}, {"batch": 4})
        data.next()
        self.assertEqual(repr(data), "<epl.Dataset of 8 samples in 2 batches, at batch 1>")
        data = epl.Dataset.of_arrays(engine, {"x": X, "target": TARGET}, {"batch": 8})
        with epl.Job(engine, steps=3) as job:
            self.assertEqual(repr(job), "<epl.Job before its first step>")
            job.start(session, data)
            while job.next().kind != "step":
                pass
            self.assertEqual(repr(job), "<epl.Job after 1 of 3 steps, running>")
            self.assertEqual([event.kind for event in job][-1], "done")
            self.assertEqual(repr(job), "<epl.Job after 3 of 3 steps, steps>")
        self.assertEqual(repr(job), "<epl.Job, closed>")

    def test_every_public_callable_is_typed(self):
        def functions(of, name):
            for key, each in vars(of).items():
                each = getattr(each, "__func__", getattr(each, "fget", each))
                made = dataclasses.is_dataclass(of) and key in ("__init__", "__repr__", "__eq__", "__hash__")
                public = not key.startswith("_") or key in ("__init__", "__len__", "__iter__", "__enter__", "__repr__")
                if inspect.isfunction(each) and public and not made:
                    yield f"{name}.{key}", each
        found = {}
        for name in epl.__all__:
            each = getattr(epl, name)
            if inspect.isfunction(each):
                found[name] = each
            elif inspect.isclass(each):
                for of in each.__mro__:
                    found.update(functions(of, f"{name}: {of.__name__}") if of.__module__.startswith("epl") else ())
        self.assertGreater(len(found), 200)
        for name, function in found.items():
            signature = inspect.signature(function)
            bare = [key for key, one in signature.parameters.items()
                    if one.annotation is one.empty and key not in ("self", "cls")]
            self.assertEqual(bare, [], name)
            self.assertIsNot(signature.return_annotation, signature.empty, name)

    def test_messages_show_a_part_of_what_was_given(self):
        engine, model, plan = world()
        session, name = epl.Session(plan), "no\nsuch\x1b[2J" + 5000 * "x"
        with epl.Feed(engine, {name: ("f32", (8, 4))}) as feed:
            for call in (lambda: session.step({name: X}), lambda: session.step([X, TARGET], **{name: 1}),
                         lambda: session.set(session.parameters()[0], [name]), lambda: feed.push({name: ["a"]}),
                         lambda: epl.Dataset.of_arrays(engine, {name: X, "target": TARGET[:3]}),
                         lambda: epl.Feed(engine, {"x": (name, (8, 4))}),
                         lambda: epl.Feed(engine, {name: ("f32", 20 * [1])}),
                         lambda: epl.Plan(model, options={name: 1}), lambda: epl.Trainer(engine, {name: 1}),
                         lambda: epl.Trainer(engine, {name: math.nan}), lambda: epl.Model(engine, name),
                         lambda: epl.from_launch({"EPL_RANK": name}), lambda: epl.Job(engine, **{name: 1})):
                with self.assertRaises((ValueError, TypeError, epl.Error)) as raised:
                    call()
                message = str(raised.exception)
                self.assertLess(len(message), 2000, message)
                self.assertTrue(message.isprintable(), message)
                self.assertNotIn(700 * "x", message)

    def test_numbers_that_are_not_finite_are_named(self):
        engine, _, _ = world()
        for value in (math.nan, math.inf, -math.inf, np.float32("nan")):
            for settings in ({"optimizer.lr": value}, {"optimizer": epl.optimizers.AdamW(lr=value)}):
                with self.assertRaisesRegex(ValueError, f'"optimizer.lr" is {float(value)}, and settings are finite'):
                    epl.Trainer(engine, settings)
            with self.assertRaisesRegex(ValueError, '"epochs" is'):
                epl.Job(engine, epochs=value)
            with self.assertRaisesRegex(ValueError, '"optimizer.betas" is'):
                epl.Trainer(engine, {"optimizer": epl.optimizers.AdamW(betas=(0.9, value))})
        epl.Trainer(engine, {"optimizer.lr": np.float32(0.5), "symbols": {"batch": np.int64(4)}})
        with self.assertRaisesRegex(epl.Error, "NaN"):  # as another writer of JSON has it
            epl.Trainer(engine, '{"optimizer.lr": NaN}')

    def test_the_package_shows_what_is_its_own(self):
        names = {name for name in dir(epl) if not name.startswith("_")}
        self.assertEqual(names, set(epl.__all__))
        for value in [*vars(epl).values(), *(each for name in epl.__all__ if inspect.isclass(getattr(epl, name))
                                             for each in vars(getattr(epl, name)).values())]:
            self.assertNotRegex(getattr(value, "__doc__", None) or "", r"\bNULL\b|\bEPL_[A-Z]|\bepl_session_")

    def test_engine_options_are_keywords(self):
        with self.assertRaises(epl.Error) as raised:
            engine = epl.Engine(threads=1, memory_bytes=1000)
            engine.write_template("mlp", {"sizes": [64, 64]}, FOLDER / "large.onnx")
            trainer = epl.Trainer(engine, {"symbols": {"batch": 8}})
            epl.Session(epl.Plan(epl.Model(engine, FOLDER / "large.onnx"), trainer))
        self.assertEqual(raised.exception.code, epl.ERROR_OUT_OF_MEMORY)
        with self.assertRaisesRegex(TypeError, "no field"):
            epl.Engine(memory=1)


class Host(unittest.TestCase):
    tearDown = Values.tearDown

    def test_samples_of_functions_and_arrays(self):
        engine, _, plan = world()
        data = {"x": X.repeat(3, 0), "target": TARGET.repeat(3)}
        asked = []

        def read(samples):
            asked.append(samples)
            return {name: each[samples] for name, each in data.items()}
        fields = {"x": ("f32", (4,)), "target": ("i64", ())}
        settings = {"batch": 8, "order": "shuffled", "seed": 4}
        hashes = set()
        for dataset in (epl.Dataset.of_function(engine, fields, 24, read, settings),
                        epl.Dataset.of_arrays(engine, data, settings)):
            dataset.bind(plan)
            session = epl.Session(plan)
            self.assertEqual(len(dataset), 3)
            for batch in dataset:
                session.step(batch)
            hashes.add(session.hash())
        self.assertEqual(len(hashes), 1)
        held_out = epl.Dataset.of_arrays(engine, data, {"split": "held_out"})
        self.assertEqual(held_out.samples(), 5)  # a fifth, where nothing else is said
        self.assertEqual(sorted(sum(asked, [])), list(range(24)))  # each sample once, though it has two fields

        def broken(samples):
            raise KeyError("gone")
        with self.assertRaisesRegex(epl.Error, "KeyError: 'gone'"):
            epl.Dataset.of_function(engine, fields, 24, broken, {"batch": 8}).next()
        with self.assertRaisesRegex(epl.Error, 'field "x" of 8 samples has 128 bytes; given were 96'):
            epl.Dataset.of_function(engine, fields, 24, lambda samples: [X[:6], TARGET], {"batch": 8}).next()
        with self.assertRaisesRegex(ValueError, "different numbers of samples: x has 24, target has 8"):
            epl.Dataset.of_arrays(engine, {"x": data["x"], "target": TARGET})
        with self.assertRaisesRegex(TypeError, 'no element type "?\'?float33'):
            epl.Feed(engine, {"x": ("float33", (4,))})

    def test_a_feed_ends(self):
        engine, _, plan = world()
        feed = epl.Feed(engine, {"x": ("f32", (8, 4)), "target": ("i64", (8,))}, capacity=1)
        dataset, session = epl.Dataset.of_feed(feed), epl.Session(plan)

        def produce():
            for _ in range(5):
                feed.push({"target": TARGET, "x": X})
            feed.finish()
        producer = threading.Thread(target=produce)
        producer.start()
        for batch in dataset:
            session.step(batch)
        producer.join()
        self.assertEqual(session.steps(), 5)
        with self.assertRaises(TypeError):
            len(dataset)

    def test_files_of_python(self):
        engine, model, plan = world()
        session = epl.Session(plan)
        session.step([X, TARGET])
        checkpoint, exported = io.BytesIO(), io.BytesIO()
        session.save_to(checkpoint)
        session.export_to("onnx", exported)
        other = epl.Session(plan)
        other.load_from(checkpoint)
        self.assertEqual((other.steps(), other.hash()), (1, session.hash()))
        again = epl.Model(engine, exported)
        self.assertEqual(again.ports(), model.ports())

        class Full(io.RawIOBase):
            def write(self, data):
                raise OSError(28, "No space left on device")
        with self.assertRaisesRegex(epl.Error, "OSError: .*No space left"):
            session.save_to(Full())
        with self.assertRaises(epl.Error):
            other.load_from(io.BytesIO(checkpoint.getvalue()[:-100]))
        self.assertEqual(other.hash(), session.hash())

    def test_an_operator_of_the_host(self):
        try:
            from onnx import TensorProto, helper, numpy_helper
        except ImportError:
            self.skipTest("this Python has no onnx, which makes the model with the operator")
        weight = numpy_helper.from_array(np.full((4, 2), 0.1, np.float32), "weight")
        graph = helper.make_graph(
            [helper.make_node("Cube", ["x"], ["cubed"], domain="mine", scale=2.0),
             helper.make_node("MatMul", ["cubed", "weight"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 2])], [weight])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)],
                                  ir_version=10)
        engine = epl.Engine(threads=1)
        engine.add_op("mine", "Cube", lambda attributes, x: x,
                      lambda attributes, inputs, outputs: np.copyto(outputs[0], attributes["scale"] * inputs[0] ** 3),
                      sharding="... -> ...")
        plan = epl.Plan(epl.Model(engine, model.SerializeToString()), epl.Trainer(engine, {"loss": "mse"}))
        session = epl.Session(plan)
        found = session.predict([X])["y"].numpy()
        np.testing.assert_allclose(found, 2 * X**3 @ np.full((4, 2), 0.1, np.float32), rtol=1e-5, atol=1e-6)
        before = session.evaluate([X, np.zeros((8, 2))]).loss
        session.step([X, np.zeros((8, 2))])
        self.assertLess(session.evaluate([X, np.zeros((8, 2))]).loss, before)

    def test_events_are_awaited(self):
        _, _, plan = world()
        session, twin = epl.Session(plan), epl.Session(plan)

        async def train():
            for _ in range(3):
                metrics = await session.step_async([X.copy(), TARGET.copy()])  # nothing but the event keeps these
                gc.collect()
            event = session.predict_async([X[:3]])
            await event
            return metrics, next(iter(event.outputs.values())).numpy()
        metrics, scores = asyncio.run(train())
        for _ in range(3):
            wanted = twin.step([X, TARGET])
        self.assertEqual((metrics.step, metrics.loss, session.hash()), (3, wanted.loss, twin.hash()))
        np.testing.assert_array_equal(scores, next(iter(twin.predict([X[:3]]).values())).numpy())

        async def bad():
            await session.step_async([X, np.full(8, 7)])
        with self.assertRaises(epl.Error):
            asyncio.run(bad())
        called = []
        event = session.evaluate_async([X, TARGET])
        event.wait()
        event.on_ready(lambda: called.append(1))
        self.assertEqual(called, [1])

    def test_a_task_that_is_cancelled_ends_its_step(self):
        engine = epl.Engine(threads=1)
        engine.write_template("mlp", {"sizes": [512, 2048, 2048, 2]}, FOLDER / "slow.onnx")
        plan = epl.Plan(epl.Model(engine, FOLDER / "slow.onnx"), epl.Trainer(engine, {"symbols": {"batch": 512}}))
        session, x = epl.Session(plan), np.ones((512, 512), np.float32)
        session.step([x, np.zeros(512, np.int64)])
        before = session.hash()

        async def given_up():
            event = session.step_async([x, np.zeros(512, np.int64)])
            task = asyncio.ensure_future(_of(event))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            try:
                event.wait()
            except epl.Error as error:
                return error.code
            return epl.OK

        async def _of(event):
            return await event
        code = asyncio.run(given_up())
        self.assertIn(code, (epl.ERROR_CANCELLED, epl.OK))  # OK where the step was done before it heard
        self.assertEqual(session.hash() == before, code == epl.ERROR_CANCELLED)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
