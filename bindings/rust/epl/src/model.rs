use crate::call::Call;
use crate::engine::Engine;
use crate::error::Result;
use crate::handle::{given, given_text, path_text, raw, shared_handle, text_of};
use crate::tensor::{infos, Info};
use epl_sys as sys;
use std::path::Path;

shared_handle!(
    /// A model file with its parameters. Clones are the same model.
    Model, epl_model, epl_model_destroy, engine: Engine
);

impl Model {
    /// Reads a model file. Large weights stay in the file until a session or an export needs them.
    pub fn load(engine: &Engine, path: impl AsRef<Path>, call: &Call) -> Result<Model> {
        let (path, length) = raw(path_text(path.as_ref())?);
        given(|place| unsafe {
            sys::epl_model_load(engine.0.as_ptr(), path, length, std::ptr::null(), &call.raw(), place)
        })
        .map(|raw| Model::own(raw, engine))
    }
    /// Reads a model from memory, which is copied.
    pub fn from_bytes(engine: &Engine, bytes: &[u8], call: &Call) -> Result<Model> {
        given(|place| unsafe {
            sys::epl_model_load_bytes(
                engine.0.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
                std::ptr::null(),
                &call.raw(),
                place,
            )
        })
        .map(|raw| Model::own(raw, engine))
    }
    fn ports(&self, kind: i32) -> Result<Vec<Info>> {
        infos(unsafe { sys::epl_model_port_count(self.0.as_ptr(), kind) }, |index, info| unsafe {
            sys::epl_model_port(self.0.as_ptr(), kind, index, info)
        })
    }
    /// What the model takes.
    pub fn inputs(&self) -> Result<Vec<Info>> {
        self.ports(sys::EPL_PORT_INPUT)
    }
    /// What the model gives.
    pub fn outputs(&self) -> Result<Vec<Info>> {
        self.ports(sys::EPL_PORT_OUTPUT)
    }
    /// What the file has values of, parameters and constants.
    pub fn initializers(&self) -> Result<Vec<Info>> {
        self.ports(sys::EPL_PORT_INITIALIZER)
    }
    /// The name of a symbolic dimension of an input, "batch"; none where it has none.
    /// [`Trainer::bind`](crate::Trainer::bind) gives it its size.
    pub fn symbol(&self, input: usize, dim: usize) -> Option<String> {
        let (input, mut length) = (i64::try_from(input).ok()?, 0);
        let dim = i32::try_from(dim).ok()?;
        let name = unsafe {
            let data = sys::epl_model_dim_symbol(self.0.as_ptr(), sys::EPL_PORT_INPUT, input, dim, &mut length);
            text_of(data, length)
        };
        (!name.is_empty()).then_some(name)
    }
    /// As JSON, all that is known about the file.
    pub fn describe(&self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_model_describe(self.0.as_ptr(), place) })
    }
    /// As a JSON list, what its owner should know before training it.
    pub fn findings(&self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_model_findings(self.0.as_ptr(), place) })
    }
}
