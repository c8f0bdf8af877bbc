use crate::call::Call;
use crate::engine::Engine;
use crate::error::{check, Result};
use crate::handle::{given, given_text, handle, path_text, raw, shared_handle};
use crate::model::Model;
use crate::tensor::{infos, Info, TensorRef};
use crate::trainer::Trainer;
use epl_sys as sys;
use std::path::Path;

handle!(
    /// How the work of a step is spread over ranks.
    Strategy, epl_strategy, epl_strategy_destroy
);
// The header: one caller at a time, from any thread. `&mut self` is one caller, and a plan takes one too.
unsafe impl Send for Strategy {}

impl Strategy {
    /// With all defaults, and without scopes.
    pub fn new(engine: &Engine) -> Result<Strategy> {
        given(|place| unsafe { sys::epl_strategy_create(engine.0.as_ptr(), place) }).map(Strategy)
    }
    /// Of the JSON form (docs/strategy.md); `{}` for defaults.
    pub fn parse(engine: &Engine, json: &str) -> Result<Strategy> {
        let (json, length) = raw(json);
        given(|place| unsafe { sys::epl_strategy_parse(engine.0.as_ptr(), json, length, place) }).map(Strategy)
    }
    /// Of what serde writes as that JSON.
    #[cfg(feature = "serde")]
    pub fn of(engine: &Engine, strategy: &impl serde::Serialize) -> Result<Strategy> {
        Strategy::parse(engine, &crate::handle::json(strategy)?)
    }
    /// What the model's file itself asks for on that many ranks.
    pub fn of_model(model: &Model, ranks: u64) -> Result<Strategy> {
        given(|place| unsafe { sys::epl_strategy_of_model(model.0.as_ptr(), ranks as i64, place) }).map(Strategy)
    }
    /// Sets one key, "pipeline.num_micro_batch" for example.
    pub fn set(&mut self, key: &str, value: impl std::fmt::Display) -> Result<&mut Strategy> {
        let text = value.to_string();
        let ((key, key_length), (value, value_length)) = (raw(key), raw(&text));
        check(unsafe { sys::epl_strategy_set(self.0.as_ptr(), key, key_length, value, value_length) })?;
        Ok(self)
    }
    /// The JSON form.
    pub fn describe(&mut self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_strategy_describe(self.0.as_ptr(), place) })
    }
    /// A scope behind those that are there: siblings are stages of a pipeline, in the order of the calls. Without a
    /// match it has every node. `name` may be empty.
    pub fn add_scope(&mut self, kind: ScopeKind, devices: u64, name: &str) -> Result<Scope<'_>> {
        self.scope(sys::EPL_SCOPE_TOP as i64, kind, devices, name)
    }
    /// The scope of every node that no other one matches.
    pub fn set_default(&mut self, kind: ScopeKind, devices: u64) -> Result<Scope<'_>> {
        self.scope(sys::EPL_SCOPE_DEFAULT as i64, kind, devices, "")
    }
    fn scope(&mut self, outer: i64, kind: ScopeKind, devices: u64, name: &str) -> Result<Scope<'_>> {
        let ((name, length), mut number) = (raw(name), 0);
        let devices = devices as i64;
        check(unsafe {
            sys::epl_strategy_add_scope(self.0.as_ptr(), outer, kind as i32, devices, name, length, &mut number)
        })?;
        Ok(Scope { strategy: self, number })
    }
}

/// What the devices of a [`Scope`] do with its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ScopeKind {
    /// A copy of these nodes takes the devices, which share its batch.
    Replicate = sys::EPL_SCOPE_REPLICATE,
    /// Their weights are cut over the devices.
    Split = sys::EPL_SCOPE_SPLIT,
    /// Their experts are.
    Expert = sys::EPL_SCOPE_EXPERT,
}

/// A scope of a strategy, which it lends.
#[derive(Debug)]
pub struct Scope<'a> {
    strategy: &'a mut Strategy,
    number: i64,
}

impl Scope<'_> {
    /// A scope within this one.
    pub fn add_scope(&mut self, kind: ScopeKind, devices: u64, name: &str) -> Result<Scope<'_>> {
        self.strategy.scope(self.number, kind, devices, name)
    }
    /// The nodes of a glob: over names of nodes, "node:NAME", "op:MatMul" or "param:embed*".
    pub fn add_match(&mut self, pattern: &str) -> Result<&mut Self> {
        let (pattern, length) = raw(pattern);
        check(unsafe { sys::epl_strategy_add_match(self.strategy.0.as_ptr(), self.number, pattern, length) })?;
        Ok(self)
    }
    /// The dimension in which a weight, or the result of a node, is cut: from 0, or from -1 back from the end.
    pub fn pin_dim(&mut self, value: &str, dim: i32) -> Result<&mut Self> {
        let (value, length) = raw(value);
        check(unsafe { sys::epl_strategy_pin_dim(self.strategy.0.as_ptr(), self.number, value, length, dim) })?;
        Ok(self)
    }
}

/// One of the things that a plan can do: a step, an evaluation or a prediction, of batches of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry(i32);

#[allow(missing_docs)]
impl Entry {
    pub const TRAIN: Entry = Entry(sys::EPL_ENTRY_TRAIN);
    pub const EVALUATE: Entry = Entry(sys::EPL_ENTRY_EVALUATE);
    pub const PREDICT: Entry = Entry(sys::EPL_ENTRY_PREDICT);

    /// The same for batches of the n-th shape that [`Trainer::add_shape`] has added, counted from 1:
    /// `Entry::TRAIN.shape(1)`. 0 is the shape that the trainer binds.
    pub const fn shape(self, n: u8) -> Entry {
        Entry(self.0 + sys::EPL_ENTRY_SHAPE * n as i32)
    }
    pub(crate) fn raw(self) -> i32 {
        self.0
    }
}

/// The options of a [`Plan`].
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Of the job, in this and other processes; 0: 1.
    pub ranks: u64,
    /// Of this process, which share its threads; 0: all of them.
    pub local_ranks: u64,
    /// Of dropout and of new adapters.
    pub seed: u64,
    /// Empty: "cpu".
    pub device: String,
}

impl PlanOptions {
    fn raw(&self) -> sys::epl_plan_options {
        let mut options = sys::epl_plan_options {
            ranks: self.ranks as i64,
            local_ranks: self.local_ranks as i64,
            seed: self.seed,
            ..Default::default()
        };
        if !self.device.is_empty() {
            (options.device, options.device_length) = (self.device.as_ptr().cast(), self.device.len() as u64);
        }
        options
    }
}

shared_handle!(
    /// Everything decided and nothing allocated. Clones are the same plan.
    Plan, epl_plan, epl_plan_destroy, engine: Engine
);

fn pointer<T>(handle: Option<&mut T>, get: impl Fn(&T) -> *const u8) -> *const u8 {
    handle.map_or(std::ptr::null(), |one| get(one))
}

impl Plan {
    /// Decides how a model is trained. Without a trainer: a plan to predict with, of a model whose dimensions are all
    /// fixed. Without a strategy: all defaults. Both may be changed or dropped afterwards.
    pub fn new(
        model: &Model, trainer: Option<&mut Trainer>, strategy: Option<&mut Strategy>, options: &PlanOptions,
        call: &Call,
    ) -> Result<Plan> {
        let trainer = pointer(trainer, |one| one.0.as_ptr() as *const u8).cast();
        let strategy = pointer(strategy, |one| one.0.as_ptr() as *const u8).cast();
        given(|place| unsafe {
            sys::epl_plan_create(model.0.as_ptr(), trainer, strategy, &options.raw(), &call.raw(), place)
        })
        .map(|raw| Plan::own(raw, &model.1))
    }
    /// The same with the decisions of a file of [`Plan::save`].
    pub fn load(
        model: &Model, trainer: Option<&mut Trainer>, strategy: Option<&mut Strategy>, options: &PlanOptions,
        path: impl AsRef<Path>, call: &Call,
    ) -> Result<Plan> {
        let trainer = pointer(trainer, |one| one.0.as_ptr() as *const u8).cast();
        let strategy = pointer(strategy, |one| one.0.as_ptr() as *const u8).cast();
        let (path, length) = raw(path_text(path.as_ref())?);
        given(|place| unsafe {
            sys::epl_plan_load(model.0.as_ptr(), trainer, strategy, &options.raw(), path, length, &call.raw(), place)
        })
        .map(|raw| Plan::own(raw, &model.1))
    }
    /// The same with the decisions that [`Plan::save_to`] wrote.
    pub fn load_bytes(
        model: &Model, trainer: Option<&mut Trainer>, strategy: Option<&mut Strategy>, options: &PlanOptions,
        bytes: &[u8], call: &Call,
    ) -> Result<Plan> {
        let trainer = pointer(trainer, |one| one.0.as_ptr() as *const u8).cast();
        let strategy = pointer(strategy, |one| one.0.as_ptr() as *const u8).cast();
        given(|place| unsafe {
            sys::epl_plan_load_bytes(
                model.0.as_ptr(),
                trainer,
                strategy,
                &options.raw(),
                bytes.as_ptr().cast(),
                bytes.len(),
                &call.raw(),
                place,
            )
        })
        .map(|raw| Plan::own(raw, &model.1))
    }
    fn ports(&self, entry: Entry, kind: i32) -> Result<Vec<Info>> {
        infos(unsafe { sys::epl_plan_port_count(self.0.as_ptr(), entry.raw(), kind) }, |index, info| unsafe {
            sys::epl_plan_port(self.0.as_ptr(), entry.raw(), kind, index, info)
        })
    }
    /// What calls take, in their order.
    pub fn inputs(&self, entry: Entry) -> Result<Vec<Info>> {
        self.ports(entry, sys::EPL_PORT_INPUT)
    }
    /// What calls give, in their order.
    pub fn outputs(&self, entry: Entry) -> Result<Vec<Info>> {
        self.ports(entry, sys::EPL_PORT_OUTPUT)
    }
    /// The place of an input by its name.
    pub fn input(&self, entry: Entry, name: &str) -> Option<usize> {
        let (name, length) = raw(name);
        let index = unsafe { sys::epl_plan_find_port(self.0.as_ptr(), entry.raw(), sys::EPL_PORT_INPUT, name, length) };
        usize::try_from(index).ok()
    }
    /// Inputs by name in the order in which calls take them: `session.step(plan.named(Entry::TRAIN, [("x", &x), ("target",
    /// &target)])?, &call)`. An error names what is missing, or is no input.
    pub fn named<'t, 'n, T: Into<TensorRef<'t>>>(
        &self, entry: Entry, inputs: impl IntoIterator<Item = (&'n str, T)>,
    ) -> Result<Vec<TensorRef<'t>>> {
        let names: Vec<String> = self.inputs(entry)?.into_iter().map(|one| one.name).collect();
        let mut found: Vec<Option<TensorRef<'t>>> = names.iter().map(|_| None).collect();
        for (name, one) in inputs {
            let Some(place) = names.iter().position(|known| known == name) else {
                let message = format!("there is no input {name:?}; there are {}", names.join(", "));
                return Err(crate::Error::invalid(message));
            };
            found[place] = Some(one.into());
        }
        let missing = |name: &String| crate::Error::invalid(format!("nothing is given for {name}"));
        found.into_iter().zip(&names).map(|(one, name)| one.ok_or_else(|| missing(name))).collect()
    }
    /// The samples of an input, first and number, that any of so many ranks from `first_rank` on reads: what a process
    /// with these ranks passes where [`SessionOptions::slices`](crate::SessionOptions) is set.
    pub fn slice(&self, entry: Entry, input: usize, first_rank: u64, ranks: u64) -> Result<(i64, i64)> {
        let (mut first, mut samples) = (0, 0);
        check(unsafe {
            sys::epl_plan_slice(
                self.0.as_ptr(),
                entry.raw(),
                input as i64,
                first_rank as i64,
                ranks as i64,
                &mut first,
                &mut samples,
            )
        })?;
        Ok((first, samples))
    }
    /// Of the job.
    pub fn ranks(&self) -> i64 {
        unsafe { sys::epl_plan_ranks(self.0.as_ptr()) }
    }
    /// Bytes that a rank will have at its peak, exact; none for a rank that is not there.
    pub fn memory_bytes_peak(&self, rank: u64) -> Option<u64> {
        u64::try_from(unsafe { sys::epl_plan_memory_bytes_peak(self.0.as_ptr(), rank as i64) }).ok()
    }
    /// A text for people: "explain", "graph", "plan", "local", "program", "kernels", "evaluate.graph", ...
    pub fn print(&self, stage: &str, call: &Call) -> Result<String> {
        let (stage, length) = raw(stage);
        given_text(|place| unsafe { sys::epl_plan_print(self.0.as_ptr(), stage, length, &call.raw(), place) })
    }
    /// A JSON document for programs: "overview", "memory", "parameters" or "notes".
    pub fn describe(&self, document: &str, call: &Call) -> Result<String> {
        let (document, length) = raw(document);
        given_text(|place| unsafe { sys::epl_plan_describe(self.0.as_ptr(), document, length, &call.raw(), place) })
    }
    /// Writes the decisions of the plan.
    pub fn save(&self, path: impl AsRef<Path>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_plan_save(self.0.as_ptr(), path, length, &call.raw()) })
    }
    /// Writes the model's file with the plan in it, as device annotations of ONNX.
    pub fn export_onnx(&self, path: impl AsRef<Path>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_plan_export_onnx(self.0.as_ptr(), path, length, &call.raw()) })
    }
}
