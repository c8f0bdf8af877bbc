use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::{check, Result};
use crate::handle::{given, given_text, handle, raw};
use crate::model::Model;
use crate::tensor::{DType, TensorRef};
use epl_sys as sys;

handle!(
    /// What is learnt and how: loss, optimizer, schedule, what is frozen, what sizes are bound.
    Trainer, epl_trainer, epl_trainer_destroy
);
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Trainer {}

/// Low-rank adapters; zeros are defaults (rank 8, alpha 16, no dropout).
#[derive(Clone, Copy, Debug, Default)]
pub struct Adapter {
    /// Of the two small matrices.
    pub rank: u64,
    /// Their product is scaled by alpha / rank.
    pub alpha: f64,
    /// Of what they are applied to, in training.
    pub dropout: f64,
}

impl Trainer {
    /// A trainer with all defaults: cross-entropy and plain gradient descent.
    pub fn new(engine: &Engine) -> Result<Trainer> {
        given(|place| unsafe { sys::epl_trainer_create(engine.0.as_ptr(), place) }).map(Trainer)
    }
    /// A trainer of [`TrainerSettings`](crate::TrainerSettings), or of the JSON that [`Trainer::describe`] gives.
    pub fn parse(engine: &Engine, settings: impl std::fmt::Display) -> Result<Trainer> {
        let text = settings.to_string();
        let (json, length) = raw(&text);
        given(|place| unsafe { sys::epl_trainer_parse(engine.0.as_ptr(), json, length, place) }).map(Trainer)
    }
    /// A trainer of settings that serde writes: a map, `serde_json::json!`, or a struct of your own with names such as
    /// `#[serde(rename = "optimizer.lr")]`.
    #[cfg(feature = "serde")]
    pub fn of(engine: &Engine, settings: &impl serde::Serialize) -> Result<Trainer> {
        Trainer::parse(engine, &crate::handle::json(settings)?)
    }
    /// Sets a key: "loss", "optimizer", "optimizer.lr", "schedule", "clip_norm" and others (docs/training.md).
    pub fn set(&mut self, key: &str, value: impl std::fmt::Display) -> Result<&mut Trainer> {
        let text = value.to_string();
        let ((key, key_length), (value, value_length)) = (raw(key), raw(&text));
        check(unsafe { sys::epl_trainer_set(self.0.as_ptr(), key, key_length, value, value_length) })?;
        Ok(self)
    }
    /// Gives a key its default again.
    pub fn unset(&mut self, key: &str) -> Result<&mut Trainer> {
        let (key, length) = raw(key);
        check(unsafe { sys::epl_trainer_unset(self.0.as_ptr(), key, length) })?;
        Ok(self)
    }
    /// Gives a symbolic dimension of the model its size, "batch" for example.
    pub fn bind(&mut self, symbol: &str, size: i64) -> Result<&mut Trainer> {
        let (symbol, length) = raw(symbol);
        check(unsafe { sys::epl_trainer_bind_symbol(self.0.as_ptr(), symbol, length, size) })?;
        Ok(self)
    }
    /// Gives an input its shape; of the name "target" that of the loss's target, with its type. Without a type it is the
    /// model's own.
    pub fn bind_input(&mut self, input: &str, dtype: Option<DType>, dims: &[i64]) -> Result<&mut Trainer> {
        let (input, length) = raw(input);
        let dtype = dtype.map_or(sys::EPL_DTYPE_NONE, |one| one.0);
        let ndim = i32::try_from(dims.len()).unwrap_or(i32::MAX);
        check(unsafe { sys::epl_trainer_bind_input(self.0.as_ptr(), input, length, dtype, dims.as_ptr(), ndim) })?;
        Ok(self)
    }
    /// Binds the inputs of a model, and the target where it is a class, as batches of a dataset have them.
    pub fn bind_dataset(&mut self, model: &Model, dataset: &mut Dataset) -> Result<&mut Trainer> {
        check(unsafe { sys::epl_trainer_bind_dataset(self.0.as_ptr(), model.0.as_ptr(), dataset.0.as_ptr()) })?;
        Ok(self)
    }
    /// Which dimension of an input, or of the "target", counts samples; none: it counts none.
    pub fn bind_batch_dim(&mut self, input: &str, dim: Option<u32>) -> Result<&mut Trainer> {
        let (input, length) = raw(input);
        let dim = dim.map_or(-1, |one| one as i32);
        check(unsafe { sys::epl_trainer_bind_batch_dim(self.0.as_ptr(), input, length, dim) })?;
        Ok(self)
    }
    /// Makes an input a constant, which no call takes any more.
    pub fn bind_value<'t>(&mut self, input: &str, value: impl Into<TensorRef<'t>>) -> Result<&mut Trainer> {
        let (input, length) = raw(input);
        check(unsafe { sys::epl_trainer_bind_value(self.0.as_ptr(), input, length, value.into().raw) })?;
        Ok(self)
    }
    /// Names one more shape that batches may have, as JSON: `{"symbols": {"length": 64}}` for a bucket of shorter texts,
    /// `{"symbols": {"batch": 3}}` for what an epoch leaves over. [`Entry::shape`](crate::Entry::shape) asks a plan about
    /// it; steps, evaluations and predictions find it by what they are given.
    pub fn add_shape(&mut self, shape: &str) -> Result<&mut Trainer> {
        let (shape, length) = raw(shape);
        check(unsafe { sys::epl_trainer_add_shape(self.0.as_ptr(), shape, length) })?;
        Ok(self)
    }
    /// Trains the parameters whose names match one of the globs, and freezes all others.
    pub fn train_only<'p>(&mut self, patterns: impl IntoIterator<Item = &'p str>) -> Result<&mut Trainer> {
        for pattern in patterns {
            let (pattern, length) = raw(pattern);
            check(unsafe { sys::epl_trainer_train_only(self.0.as_ptr(), pattern, length) })?;
        }
        Ok(self)
    }
    /// Gives the parameters that match one of the globs options of their own: `[("lr", "0.1")]`, `[("frozen", "true")]`.
    /// The first group that matches a parameter has it.
    pub fn group(&mut self, patterns: &[&str], options: &[(&str, &str)]) -> Result<&mut Trainer> {
        let mut group = 0;
        for (i, pattern) in patterns.iter().enumerate() {
            let (pattern, length) = raw(pattern);
            check(unsafe {
                if i == 0 {
                    sys::epl_trainer_add_group(self.0.as_ptr(), pattern, length, &mut group)
                } else {
                    sys::epl_trainer_group_add(self.0.as_ptr(), group, pattern, length)
                }
            })?;
        }
        for (key, value) in options {
            let ((key, key_length), (value, value_length)) = (raw(key), raw(value));
            check(unsafe { sys::epl_trainer_group_set(self.0.as_ptr(), group, key, key_length, value, value_length) })?;
        }
        Ok(self)
    }
    /// Puts low-rank adapters beside every product and convolution whose module or weight matches the glob.
    pub fn add_adapter(&mut self, pattern: &str, adapter: Adapter) -> Result<&mut Trainer> {
        let (pattern, length) = raw(pattern);
        let options = sys::epl_adapter_options {
            rank: adapter.rank as i64,
            alpha: adapter.alpha,
            dropout: adapter.dropout,
            ..Default::default()
        };
        check(unsafe { sys::epl_trainer_add_adapter(self.0.as_ptr(), pattern, length, &options) })?;
        Ok(self)
    }
    /// All that was set, as JSON for [`Trainer::parse`].
    pub fn describe(&mut self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_trainer_describe(self.0.as_ptr(), place) })
    }
}
