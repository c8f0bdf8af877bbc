#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod call;
mod dataset;
mod engine;
mod error;
mod evaluation;
mod folder;
mod handle;
mod hostdata;
mod job;
mod launch;
mod model;
mod ops;
mod pending;
mod plan;
mod predictor;
mod session;
pub mod settings;
mod source;
mod steps;
mod store;
mod streams;
mod tensor;
mod trainer;

pub use call::{Call, CancelToken};
pub use dataset::{Batch, Dataset};
pub use engine::{Device, Engine, EngineBuilder, Level};
pub use error::{Code, Error, Result};
pub use evaluation::Evaluation;
pub use folder::FolderLock;
pub use hostdata::{elements_mut, Feed, Field, SampleReader};
pub use job::{find_checkpoint, fit, Job, JobEnd, JobEvent, JobEventKind, Running};
pub use launch::Launch;
pub use model::Model;
pub use ops::{Op, OpInput, OpOptions, OpOutput, Operand};
pub use pending::{Pending, Predicting};
pub use plan::{Entry, Plan, PlanOptions, Scope, ScopeKind, Strategy};
pub use predictor::Predictor;
pub use session::{Metrics, Session, SessionOptions, StateKind};
pub use settings::{losses, optimizers, schedules, JobSettings, TrainerSettings};
pub use source::Source;
#[cfg(feature = "futures")]
pub use steps::StepStream;
pub use steps::Steps;
pub use store::Store;
pub use streams::Format;
pub use tensor::{DType, Element, Info, Tensor, TensorRef};
pub use trainer::{Adapter, Trainer};

/// Of the library in use: major * 1000000 + minor * 1000 + patch.
pub fn version() -> u32 {
    unsafe { epl_sys::epl_version() }
}

/// What the library has given to this process and not got back, errors and texts included: zero when everything was
/// dropped. For tests.
pub fn live_handles() -> i64 {
    unsafe { epl_sys::epl_live_handles() }
}
